"""Who may log in to the tests' server beside the owner of its token: a pupil and a teacher, and
somebody whom it has a fault with."""

from typing import Any

from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.auth.identity import IdentityProvider, User

PUPIL_TOKEN = "a-pupils-token"
TEACHER_TOKEN = "a-teachers-token"
STUMBLING_TOKEN = "a-token-that-the-authorizer-stumbles-over"
_NAMES = {PUPIL_TOKEN: "pupil", TEACHER_TOKEN: "teacher", STUMBLING_TOKEN: "stumbler"}


class RoomIdentity(IdentityProvider):
    """Jupyter's own, and two people more."""

    async def get_user_token(self, handler: Any) -> User | None:
        name = _NAMES.get(self.get_token(handler) or "")
        return User(name) if name else await super().get_user_token(handler)


class RoomAuthorizer(Authorizer):
    """The pupil may take part, and nothing else of this server."""

    def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        if user.username == "stumbler":
            raise LookupError("the authorizer stumbled")
        return user.username != "pupil" or resource == "workshop-gpu"
