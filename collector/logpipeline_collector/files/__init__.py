"""The collector's files and what is known of them: one archive a partition, beside the files it
describes.
"""
