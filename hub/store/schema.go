package store

// migrations make the schema: see sqldb.Migrate. Times are Unix nanoseconds; 0: none.
var migrations = []string{
	// A version of a thing holds from one revision on (since) and until another one; forever is the latest. A body that is NULL
	// says that the thing is not there. team is that of a key, for lists and counts; else ''. encoded is what the policy has of a
	// key, made from its body so that a hub with a million of them starts in seconds; else NULL.
	`CREATE TABLE revisions (number BIGINT PRIMARY KEY, digest TEXT NOT NULL, message TEXT NOT NULL, actor TEXT NOT NULL,
		role TEXT NOT NULL, request TEXT NOT NULL, at BIGINT NOT NULL, changes BIGINT NOT NULL, rollback_to BIGINT NOT NULL);
	CREATE TABLE versions (kind TEXT_C NOT NULL, name TEXT_C NOT NULL, since BIGINT NOT NULL, until BIGINT NOT NULL,
		team TEXT_C NOT NULL, body BYTES, encoded BYTES, created BIGINT NOT NULL, updated BIGINT NOT NULL, PRIMARY KEY (kind, name, since));
	CREATE INDEX versions_by_revision ON versions (since);
	CREATE INDEX versions_by_team ON versions (team, name) WHERE until = 9223372036854775807 AND team <> '';
	CREATE TABLE audit (number BIGINT PRIMARY KEY, at BIGINT NOT NULL, actor TEXT NOT NULL, role TEXT NOT NULL, request TEXT NOT NULL,
		action TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, revision BIGINT NOT NULL, before BYTES, after BYTES);
	CREATE INDEX audit_by_thing ON audit (kind, name, number);
	CREATE TABLE answers (actor TEXT NOT NULL, idempotency TEXT NOT NULL, content BYTES NOT NULL, answer BYTES NOT NULL, at BIGINT NOT NULL,
		PRIMARY KEY (actor, idempotency));
	CREATE TABLE tokens (name TEXT_C PRIMARY KEY, hash BYTES NOT NULL UNIQUE, role TEXT NOT NULL, teams TEXT NOT NULL,
		created BIGINT NOT NULL, expires BIGINT NOT NULL, revoked BIGINT NOT NULL, used BIGINT NOT NULL);`,
	// What spokes told last.
	`CREATE TABLE reports (spoke TEXT_C PRIMARY KEY, body BYTES NOT NULL, at BIGINT NOT NULL);`,
}
