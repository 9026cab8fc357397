"""Who sends an asset's bytes: we, or the store itself at a signed address that we send the client on to.

The `url` in an answer is always our own: it outlives any signature, each use of it is checked anew (a file that is
erased, expired or another's is a 404 at once), and it stays right when `redirect` is switched. What it leads to is
signed for this one use. A client sends its Range header again to where it is sent on to.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from genflow.api.context import Context
from genflow.queue.records import AssetRecord
from genflow.storage.media import KNOWN


async def redirected(context: Context, request: Request, record: AssetRecord) -> Response | None:
    """302 to the store's own address of these bytes; None where we send them.

    We do where the store can't sign, or where it would not send them as the type that the record has (texts, say):
    an object has one type, which its bytes tell. A HEAD is ours too: what is signed is a GET.
    """
    if (
        request.method != "GET"
        or not context.settings.redirect
        or record.hash is None
        or record.content_type not in KNOWN
    ):
        return None
    url = await context.store.signed_url(record.hash, context.settings.redirect_s)
    if url is None:
        return None
    return Response(status_code=302, headers={"Location": url, "Cache-Control": "no-store"})
