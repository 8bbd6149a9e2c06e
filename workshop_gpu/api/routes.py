"""Which handler serves which address, below the server's base URL."""

from typing import Any

from workshop_gpu.api.audit import AuditHandler
from workshop_gpu.api.classroom import HelpCallHandler, HelpHandler, MessageHandler
from workshop_gpu.api.devices import ClearHandler
from workshop_gpu.api.events import EventsHandler
from workshop_gpu.api.export import ExportHandler
from workshop_gpu.api.handler import NotFound
from workshop_gpu.api.history import HistoryHandler
from workshop_gpu.api.holds import HoldHandler, HoldsHandler
from workshop_gpu.api.inputs import InputHandler, InputsHandler
from workshop_gpu.api.jobs import ImageHandler, JobHandler, JobsHandler
from workshop_gpu.api.kernel_actions import KernelsHandler, RestartHandler
from workshop_gpu.api.models import EvictHandler, LoadHandler, ModelHandler, ModelsHandler
from workshop_gpu.api.openai import OpenAIImagesHandler, OpenAIModelsHandler, OpenAINotFound
from workshop_gpu.api.openai_edits import OpenAIEditsHandler
from workshop_gpu.api.openapi import OpenAPIHandler
from workshop_gpu.api.participants import ParticipantHandler, ParticipantsHandler
from workshop_gpu.api.plans import PlanHandler
from workshop_gpu.api.policy import PauseHandler, PolicyHandler, ResumeHandler
from workshop_gpu.api.reservations import ReservationHandler, ReservationsHandler
from workshop_gpu.api.status import MeHandler, StatusHandler

_NAME = r"([^/]+)"


def routes() -> list[tuple[str, Any]]:
    """The extension's routes; the last of each family catches what is not there."""
    api = "workshop-gpu/api"
    openai = "workshop-gpu/v1"
    return [
        (rf"{api}/openapi.json", OpenAPIHandler),
        (rf"{api}/me", MeHandler),
        (rf"{api}/status", StatusHandler),
        (rf"{api}/models", ModelsHandler),
        (rf"{api}/models/{_NAME}", ModelHandler),
        (rf"{api}/models/{_NAME}/plan", PlanHandler),
        (rf"{api}/models/{_NAME}/load", LoadHandler),
        (rf"{api}/models/{_NAME}/evict", EvictHandler),
        (rf"{api}/inputs", InputsHandler),
        (rf"{api}/inputs/{_NAME}", InputHandler),
        (rf"{api}/jobs", JobsHandler),
        (rf"{api}/jobs/{_NAME}", JobHandler),
        (rf"{api}/jobs/{_NAME}/images/([0-9]{{1,4}})", ImageHandler),
        (rf"{api}/holds", HoldsHandler),
        (rf"{api}/holds/{_NAME}", HoldHandler),
        (rf"{api}/reservations", ReservationsHandler),
        (rf"{api}/reservations/{_NAME}", ReservationHandler),
        (rf"{api}/devices/{_NAME}/clear", ClearHandler),
        (rf"{api}/policy", PolicyHandler),
        (rf"{api}/queue/pause", PauseHandler),
        (rf"{api}/queue/resume", ResumeHandler),
        (rf"{api}/participants", ParticipantsHandler),
        (rf"{api}/participants/{_NAME}", ParticipantHandler),
        (rf"{api}/audit", AuditHandler),
        (rf"{api}/history", HistoryHandler),
        (rf"{api}/message", MessageHandler),
        (rf"{api}/help", HelpHandler),
        (rf"{api}/help/{_NAME}", HelpCallHandler),
        (rf"{api}/export", ExportHandler),
        (rf"{api}/kernels", KernelsHandler),
        (rf"{api}/kernels/{_NAME}/restart", RestartHandler),
        (rf"{api}/events", EventsHandler),
        (rf"{openai}/models", OpenAIModelsHandler),
        (rf"{openai}/images/generations", OpenAIImagesHandler),
        (rf"{openai}/images/edits", OpenAIEditsHandler),
        (rf"{openai}(?:/.*)?", OpenAINotFound),
        (r"workshop-gpu(?:/.*)?", NotFound),
    ]
