// Package limits decides whether one more request may pass all the limits that apply to it, and keeps the counters for that:
// in memory, or in a Redis that doors share.
//
// It promises:
//   - All or nothing. Every limit is judged before anything is written. A refused request changes no counter at any level.
//   - The n-th passes and the n+1-th does not, also when they ask at the same moment.
//   - Rate is GCRA: in any stretch of time of length d at most burst + d × rate requests pass. There is no window, so no
//     double burst at its edge.
//   - Concurrency is a set of leases, a member an admission. A lease ends by release, or by itself when nobody renews it, so
//     a count can neither leak for ever nor go below zero.
//   - Quotas are of calendar minutes, days and months in UTC. Tokens are reserved when a request is admitted, and settled when it
//     ends: parallel requests are judged by what they may use, before the first answer. Unused ones are back at once; what was
//     used above the reservation counts too, above the quota. A quota can be exceeded by those estimates' errors and by nothing
//     else; the metric spokegate_tokens_overshoot_total adds them up.
//   - One admission counts once, however often it is asked about.
//   - Limits come with each ask and are not kept: a raised, lowered or removed limit holds from the next request on.
//
// It does not promise:
//   - To settle what is over: a refund into a minute, day or month that has ended is dropped, and so is a charge.
//   - To guess: the reservation stands of a request of which nobody says what it used, because its door was killed, say. It is
//     gone with the period.
//   - To know what passed before a limit had its first quota. From then on all its requests are counted, in minute, day and
//     month alike, so that a quota of another kind that is added later knows what was used.
//   - Fairness or queues. Who asks first when there is room has it.
//   - To know when a place in a full concurrency limit gets free: RetryAfter and Reset of such a limit are a guess of one second.
//   - To find requests that began before a concurrency limit existed: only what was admitted under it holds one of its leases.
//
// # Shared by several doors
//
// [Redis] keeps the counters of all doors of a spoke. Judging and writing are one script, so one round trip, by Redis's clock.
// Its judgement is that of Decide, to the nanosecond, for what a policy may say (up to 52 days until a burst is full again).
// An ask that failed may have been done by Redis all the same, or be done later; it is given up in the background, and what it
// took from a concurrency limit comes back. Releases go through a bounded queue: the response path never waits for Redis.
//
// [Fallback] goes on when Redis is away: each door keeps to its share in memory, as many ways as doors were seen last. The
// bounds of that:
//   - The request that notices waits at most RedisConfig.Timeout, as do those that had asked at the same time; then none does.
//   - The doors' shares together are not above a limit, except that each door has one request where there are more doors than
//     requests to share. Doors that see little of the traffic leave their share unused.
//   - Of quotas of a day or a month the doors share what was left when they last looked (a beat of a few seconds ago), each as
//     far as it had seen the limit in use at all. On top each counts what it did since, in full, and what it has admitted by
//     itself in that day or month. Reservations that are settled are no longer counted from the next look on; one that was open
//     then and ends while Redis is away leaves its room to the door that had it, and to no other. A request that is within the
//     limit and above the share passes where nothing of the share is used.
//   - What is admitted meanwhile is not counted in Redis afterwards: a day's quota can be exceeded by that, so by the shares at
//     most, however often Redis goes in that day.
//   - Where doors can reach Redis and others cannot, all together can be above a limit by the shares of the latter. The same
//     for a moment after Redis is back, by what was admitted meanwhile and still runs.
//   - A Redis that was restarted empty has forgotten rates: what was used of a burst can be used again, once, and so
//     can what was used of the current minute. Leases of requests that run are put back at their next renewal. The counts of the
//     day and the month are put back, as last known, before a door that noticed asks it again; what was counted since the
//     last look is missing. Reservations that were open at that look and ended before their next renewal stand: by those tokens
//     the counts are too high. Whoever knows better (Rebuilder) may raise them; nobody lowers them.
//
// # Across spokes
//
// [Elsewhere] is what limits have counted at other stores, as somebody tells it who adds them up (a hub). Of quotas of a day and a
// month it counts as if it had been used here: in memory, in Redis, and as a share in a [Fallback]. A quota holds across stores to
// within what was used since that was told last. An admission that is asked again is told how things stood when it was decided.
//
// [Decide] is the whole judgement as a pure function. A store ([Memory], and others that pass the suite in
// limits/limitstest) gathers the facts, asks it, and writes what follows from it, in one atomic step.
package limits
