"""Who may ask: keys, the tenant that each belongs to, and what its role allows."""

from genflow.accounts.accounts import Accounts, KeyRecord, Role
from genflow.accounts.key import new_key, prefix_of

__all__ = ["Accounts", "KeyRecord", "Role", "new_key", "prefix_of"]
