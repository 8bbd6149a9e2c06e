"""Who may administer in these tests: whoever carries a cookie."""

from typing import Any

from jupyter_server.auth.authorizer import AllowAllAuthorizer

from workshop_gpu.api.identity import ADMIN_RESOURCE

COOKIE = "instructor"


class CookieAuthorizer(AllowAllAuthorizer):  # type: ignore[misc]
    """Everybody may do everything, but administer only with the cookie."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return resource != ADMIN_RESOURCE or bool(handler.get_cookie(COOKIE))
