"""Trains the small text-to-image models that the package ships, from nothing.

Read in this order: `words`, `scenes` and `prompts` say what the models learn to draw,
`drawing` draws it, `networks` and `optimizer` are what learns, `training` is the loop,
and each stage (`vae_stage`, `data_stage`, `unet_stage`, `dit_stage`, `turbo_stage`,
`lora_stage`) is one file. `plan` holds every number of the recipe.
"""
