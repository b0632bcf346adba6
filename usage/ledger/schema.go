package ledger

// migrations make the schema: see sqldb.Migrate.
var migrations = []string{
	// What is counted. hour and open_at are Unix seconds, day is days since 1970, all UTC.
	`CREATE TABLE lanes (lane TEXT PRIMARY KEY, place TEXT NOT NULL);
	CREATE TABLE admissions (admission TEXT PRIMARY KEY, day BIGINT NOT NULL, open_at BIGINT, state BYTES NOT NULL);
	CREATE INDEX admissions_by_day ON admissions (day);
	CREATE INDEX admissions_open ON admissions (open_at) WHERE open_at IS NOT NULL;
	CREATE TABLE dims (dim BIGINT PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
		team TEXT_C NOT NULL, key_id TEXT_C NOT NULL, model TEXT_C NOT NULL, labels TEXT_C NOT NULL, currency TEXT_C NOT NULL);
	CREATE TABLE totals (hour BIGINT NOT NULL, dim BIGINT NOT NULL,
		requests BIGINT NOT NULL, repaired BIGINT NOT NULL, cut BIGINT NOT NULL, failed BIGINT NOT NULL, not_served BIGINT NOT NULL,
		unknown_tokens BIGINT NOT NULL, unknown_cost BIGINT NOT NULL, unserved BIGINT NOT NULL, differing BIGINT NOT NULL,
		prompt_tokens BIGINT NOT NULL, cached_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, reasoning_tokens BIGINT NOT NULL,
		undelivered_tokens BIGINT NOT NULL, cost BIGINT NOT NULL, PRIMARY KEY (hour, dim));`,
	// What is not, and why; and what reconciliation told.
	`CREATE TABLE refused (digest TEXT PRIMARY KEY, at BIGINT NOT NULL, reason TEXT NOT NULL, id TEXT NOT NULL, origin TEXT NOT NULL,
		what TEXT NOT NULL);
	CREATE INDEX refused_by_time ON refused (at);
	CREATE TABLE balances (digest TEXT PRIMARY KEY, at BIGINT NOT NULL, body TEXT NOT NULL);
	CREATE INDEX balances_by_time ON balances (at);`,
}

// Names of what the table meta holds.
const (
	metaWriter  = "writer"  // who opened the database last
	metaBill    = "bill"    // Bill
	metaHorizon = "horizon" // Unix seconds: admissions before it may be forgotten
	metaRefused = "refused/"
)
