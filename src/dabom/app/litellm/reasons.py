"""Why a setting of LiteLLM is not carried over, by its name."""

from __future__ import annotations

_OWN_RETRIES = "Dabom tries the next target of a route before the first byte, and bounds it itself"
_OWN_BREAKER = "each upstream has a breaker of its own here"
_BODY = "a request passes byte for byte here; set it in the client or in the server"
_KEYS = "limits belong to keys here; see docs/keys.md"
_PRICE = "Dabom counts tokens, not money"
_SHARED = "one gateway keeps its state itself; there is no shared store"

REASONS = {
    "routing_strategy": "replicas are chosen by least tokens in flight, always",
    "enable_tag_filtering": "requests are told apart by what they hold; write rules under `auto`",
    "enable_pre_call_checks": "always on here: what cannot fit is refused or goes to a target with more room",
    "num_retries": _OWN_RETRIES,
    "max_retries": _OWN_RETRIES,
    "retry_after": _OWN_RETRIES,
    "retry_policy": _OWN_RETRIES,
    "model_group_retry_policy": _OWN_RETRIES,
    "allowed_fails": _OWN_BREAKER,
    "allowed_fails_policy": _OWN_BREAKER,
    "cooldown_time": _OWN_BREAKER,
    "disable_cooldowns": _OWN_BREAKER,
    "content_policy_fallbacks": "a refused content is an answer here, not a fault",
    "rpm": _KEYS,
    "tpm": _KEYS,
    "max_budget": _PRICE,
    "budget_duration": _PRICE,
    "input_cost_per_token": _PRICE,
    "output_cost_per_token": _PRICE,
    "weight": "replicas share the load by tokens in flight, not by weight",
    "temperature": _BODY,
    "top_p": _BODY,
    "max_tokens": _BODY,
    "stop": _BODY,
    "extra_body": _BODY,
    "drop_params": _BODY,
    "additional_drop_params": _BODY,
    "modify_params": _BODY,
    "organization": "no header for it is sent",
    "extra_headers": "no header of its own is sent to an upstream",
    "redis_host": _SHARED,
    "redis_port": _SHARED,
    "redis_password": _SHARED,
    "redis_url": _SHARED,
    "cache": "answers are not cached",
    "cache_params": "answers are not cached",
    "cache_responses": "answers are not cached",
    "callbacks": "see docs/audit.md and docs/metrics.md for what is written down",
    "success_callback": "see docs/audit.md and docs/metrics.md for what is written down",
    "failure_callback": "see docs/audit.md and docs/metrics.md for what is written down",
    "set_verbose": "the log has one line for each request",
    "json_logs": "the log is JSON anyway",
    "database_url": "keys stand in the file, hashed; the audit has a database of its own",
    "store_model_in_db": "models stand in the file",
    "alerting": "alert on the metrics instead; see docs/metrics.md",
    "environment_variables": "set them where the gateway is started; they may hold secrets",
    "mode": "the path of a request says what it is",
    "base_model": "its only use there is prices",
    "guardrails": "there are none of this kind",
    "include": "put the models of those files into this one, or turn each by itself",
    "mcp_servers": "the gateway relays to models only",
}
OTHER = "Dabom has nothing of this name"
PROTOCOLS = {
    "anthropic",
    "azure",
    "bedrock",
    "cohere",
    "gemini",
    "sagemaker",
    "vertex_ai",
    "watsonx",
}
"""Providers with a protocol of their own, which no OpenAI-compatible relay speaks."""
