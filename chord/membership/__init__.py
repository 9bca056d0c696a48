"""Membership: how a vnode joins a ring, leaves it and rejoins it."""
