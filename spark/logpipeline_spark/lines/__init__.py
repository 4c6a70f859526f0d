"""From stored messages to lines in Arrow: no loop over lines on the usual path."""
