"""How fast and how lean the gateway is, beside other gateways. Start with `python -m bench.gateway.run`."""
