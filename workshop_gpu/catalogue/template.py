"""The models.toml that `workshop-gpu models --init` writes: the shipped models, and examples."""

TEMPLATE = """\
# The models that this server offers, one [[model]] table each.
# The server reads this file again when it changes. A mistake is reported with its line, and the
# models stay as they were. Every key is explained in the operators' part of the documentation.

# The shipped models: small, no download, every picture in a second or two.

[[model]]
id = "shapes"
shipped = "shapes"

[[model]]
id = "shapes-dit"
shipped = "shapes-dit"

[[model]]
id = "shapes-dit-turbo"
shipped = "shapes-dit-turbo"

# LoRAs: small additions to a model that people may put on. The shipped ones draw outlines only.

[[lora]]
id = "shapes-outline"
shipped = "shapes-outline"

[[lora]]
id = "shapes-dit-outline"
shipped = "shapes-dit-outline"

# [[lora]]
# id = "watercolour"
# title = "Watercolour"
# file = "loras/watercolour.safetensors"
# models = ["sdxl-turbo"]     # the models that it is for
# scale = 0.8                 # how strongly it counts where nobody says otherwise, -2 to 2

# A model of the Hugging Face hub; it is downloaded when it is used for the first time.
# [[model]]
# id = "sdxl-turbo"
# title = "SDXL Turbo"
# description = "One to four steps, 512 x 512"
# source = { hub = "stabilityai/sdxl-turbo", variant = "fp16" }
# dtype = "float16"
# defaults = { steps = 4, guidance = 0.0, width = 512, height = 512 }
# limits = { max_pixels = 1048576, max_steps = 20 }
# keep_warm_s = 1800          # how long it stays without use before it may be dropped
# pin = true                  # never dropped
# vram_gb = 7.0               # your own figure for its weights, until they are measured
# enabled = false             # shown, but greyed out …
# reason = "on Thursday"      # … with this reason

# A pipeline folder on this disk. Relative paths start at this file's folder.
# [[model]]
# id = "our-model"
# source = { folder = "models/our-model" }

# A single file. Only .safetensors: .ckpt, .pt and .bin can run any code when they are opened.
# [[model]]
# id = "one-file"
# source = { file = "/data/models/one-file.safetensors" }
"""
