class FakeCatalogue:
    """No models; `load` does what a test wants, in its thread."""

    specs = problems = ()

    def __init__(self, load=lambda: None):
        self.load = load

    def facts(self):
        return ()

    def changed(self):
        return False

    def lora_bytes(self, loras):
        return 0

    def get(self, model):
        return model
