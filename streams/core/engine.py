"""One partition, pure: the same state, input and now give the same events and effects.

INTERFACE FIRST (being built): the runtime drives it as written here.

    engine = Engine(partition, kv, codec, settings)
    live, one transaction:
        engine.begin(now_ms, chance)            # chance() draws from [0, 1); what is drawn stands in the event
        engine.decide(command, source)          # any number; a raising handler is undone and quarantined
        more = engine.fire(settled_ms, limit)   # due timers, at most `limit`; lease ends only up to settled_ms
        engine.grant()                          # parked requests meet pending executions
        decided = engine.decided()              # Decided(events=[(key, value|None, type name)], effects=[...])
      then either
        batch = engine.commit()                 # state and index changes; the caller adds its checkpoint, writes
        engine.written()                        # after the write: near timers join the wheel
      or
        engine.abort()                          # as if begin had never been called
    time:
        engine.next_wakeup_ms() -> int | None   # earliest timer that is not a lease end, or parked request's end
        engine.lease_due(now_ms) -> bool        # a lease end is due: the caller must settle work up to now first
    replay:
        engine.apply(key, value)                # evolve only; commit()/written() as above, every few thousand
        engine.digest() -> str                  # hash of the entities, for tests and auditors
"""
