"""The commands of groups as JSON: that a payment has a status, and that an operator closes the group."""

from typing import Annotated

import msgspec

from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES
from resequencer.errors import Undecodable
from resequencer.order import OrderText, ShortText
from resequencer.printable import printable

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Currency = Annotated[str, msgspec.Meta(min_length=1, max_length=16)]


class StatedMessage(msgspec.Struct, frozen=True, gc=False):
    """What a fact says of the pain.001 of its payment. The texts are those of the message, which may be wrong."""

    OrgnlMsgId: str
    OrgnlMsgNmId: str
    OrgnlCreDtTm: str | None = None
    OrgnlNbOfTxs: str | None = None
    OrgnlCtrlSum: str | None = None


class StatedInstruction(msgspec.Struct, frozen=True, gc=False):
    """What a fact says of the payment information of its payment."""

    OrgnlPmtInfId: str
    OrgnlNbOfTxs: str | None = None
    OrgnlCtrlSum: str | None = None


class StatusFact(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="status", rename={"party": "initiatingParty"}):
    """A status that a payment has reached. Without `original` the payment belongs to no group.

    A `late` status was overtaken by a later one of its payment. `incomplete` is what was missing when the status was made.
    `party` is encoded JSON, which was not read yet, and empty if there is none.
    """

    unit: _Name
    status: str
    late: bool = False
    incomplete: str | None = None
    amount: str | None = None
    currency: _Currency | None = None
    entity: _Name | None = None
    original: StatedMessage | None = None
    instruction: StatedInstruction | None = None
    party: msgspec.Raw = msgspec.Raw()


class CloseGroup(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="close"):
    """A person ends a group that cannot complete, and says why."""

    person: ShortText
    because: OrderText


_decoder: msgspec.json.Decoder[StatusFact | CloseGroup] = msgspec.json.Decoder(StatusFact | CloseGroup)


def decode_command(body: bytes) -> StatusFact | CloseGroup:
    """Return the command in a body.

    Raises:
        Undecodable: It is not UTF-8, no JSON or no command, or its status is no ISO code.
    """
    try:
        if not body.isascii():
            body.decode()  # msgspec does not check the strings in values that it does not read.
        command = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Undecodable(f"no command of a group: {printable(str(error))}") from error
    if isinstance(command, StatusFact) and command.status not in TRANSACTION_STATUSES:
        raise Undecodable(f"no command of a group: the status {command.status!r:.40} is no ISO code")
    return command


def encode_close(person: str, because: str) -> bytes:
    """Return the body of the command that closes a group. `person` has 1 to 200 characters, `because` 1 to 1000."""
    return msgspec.json.encode(CloseGroup(person, because))
