// Package ledger adds up what was used, by hour, team, key, model and labels, in a database: SQLite or PostgreSQL.
//
// # What it promises
//
// The totals are a function of the set of records that were read: not of their order, not of how often each came, and not of
// crashes. Rows and the place up to which their records were read are written in one transaction, so that after kill -9 at
// any moment reading goes on exactly behind what is counted. Of two records of one id the one counts that [usage.Wins]: what
// its loser had added is taken out, in whichever hour it stood.
//
// A request counts when its *usage* record is there, in the hour (UTC) of its end. Unknown tokens are counted as requests
// with unknown tokens and never as 0; a sum of tokens is the sum of what is known. Money is in whole micro-units, currencies
// are never added up, and no sum wraps around: one that would is an error, and nothing of its transaction counts.
//
// # What it does not promise
//
// To prove anything: that is package balance. It believes the records; what it cannot count it lists as refused.
//
// To know an admission for ever: what makes records idempotent is kept for Config.Keep. A record that is older, of an admission
// that is forgotten, is refused as too late, for it may have been counted. Totals are kept for ever. Nothing is forgotten while
// there is something left to read, so that a new ledger can be made of topics of any age.
//
// # Writers
//
// One. A second one that opens the database takes over, and the first one's next transaction fails with [ErrTakenOver].
package ledger
