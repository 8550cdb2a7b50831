"""The audit of streams: is each publisher's message there, once and in order?"""
