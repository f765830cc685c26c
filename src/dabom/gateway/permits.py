"""The former place of the permits."""

from dabom.gateway.admission import Permit, Permits

__all__ = ["Permit", "Permits"]
