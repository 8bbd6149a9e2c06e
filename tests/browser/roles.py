"""Who may administer in these tests: a browser that carries a cookie."""

from typing import Any

from jupyter_server.auth.authorizer import AllowAllAuthorizer

from workshop_gpu.api.identity import ADMIN_RESOURCE

COOKIE = "instructor"


class CookieAuthorizer(AllowAllAuthorizer):  # type: ignore[misc]
    """Everybody may do everything, but administer only with the cookie (or the token in a header,
    as programs send it)."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        by_header = "Authorization" in handler.request.headers
        return resource != ADMIN_RESOURCE or by_header or bool(handler.get_cookie(COOKIE))
