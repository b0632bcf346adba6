// Package limits decides whether one more request may pass all the limits that apply to it.
//
// It promises:
//   - All or nothing. Every limit is judged before anything is written. A refused request changes no counter at any level.
//   - The n-th passes and the n+1-th does not, also when they ask at the same moment.
//   - Rate is GCRA: in any stretch of time of length d at most burst + d × rate requests pass. There is no window, so no double burst at its edge.
//   - Concurrency is a set of leases, a member an admission. A lease ends by release, or by itself when nobody renews it, so a count can neither
//     leak for ever nor go below zero.
//   - One admission counts once, however often it is asked about.
//   - Limits come with each ask and are not kept: a raised, lowered or removed limit holds from the next request on.
//
// It does not promise:
//   - Fairness or queues. Who asks first when there is room has it.
//   - To know when a place in a full concurrency limit gets free: RetryAfter and Reset of such a limit are a guess of one second.
//   - To find requests that began before a concurrency limit existed: only what was admitted under it holds one of its leases.
//
// [Decide] is the whole judgement as a pure function. A store ([Memory], and others that pass the suite in limits/limitstest) gathers the facts,
// asks it, and writes what follows from it, in one atomic step.
package limits
