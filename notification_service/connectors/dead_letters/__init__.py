"""Dead letters from an operator's side: reading, requeueing and discarding them, independent of the transport."""
