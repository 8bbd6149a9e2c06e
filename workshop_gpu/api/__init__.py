"""REST handlers, identity and kernel provisioner: one file per resource."""
