"""`dabom.yaml`: read with its lines, secrets put in, shorthand written out, checked, made into `Settings`."""
