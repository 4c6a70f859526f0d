"""Which log files there are, and which of their bytes come next: the side of the shipper that
knows no network.
"""
