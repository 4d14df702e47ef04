"""Studies: many runs put together to an answer, with how sure it is.

Above ``simulation``, which does one run; below ``report``, which draws what is found here.
"""
