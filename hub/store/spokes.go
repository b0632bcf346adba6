package store

// Report is what a spoke told last.
type Report struct {
	Spoke string
	Body  []byte
	At    int64
}

// PutReport keeps a spoke's report in the place of the one before.
func (t *Tx) PutReport(r Report) error {
	return t.Exec(`INSERT INTO reports (spoke, body, at) VALUES (?, ?, ?)
		ON CONFLICT (spoke) DO UPDATE SET body = excluded.body, at = excluded.at`, r.Spoke, r.Body, r.At)
}

// Reports are all spokes' last ones, in order of name.
func (t *Tx) Reports() (list []Report, err error) {
	err = t.Tx.Each(func(scan func(...any) error) error {
		var r Report
		err := scan(&r.Spoke, &r.Body, &r.At)
		list = append(list, r)
		return err
	}, `SELECT spoke, body, at FROM reports ORDER BY spoke`)
	return list, err
}

// Sum is what a team or a key has used at a spoke in a period.
type Sum struct {
	Spoke, Period, Owner, Name, Model string // Owner: "team" or "key"
	Requests, Tokens                  int64
	Gone                              int64 // when it may be forgotten
}

// PutSums keeps sums. A sum never falls: one that comes late changes nothing.
func (t *Tx) PutSums(list []Sum) error {
	for _, s := range list {
		err := t.Again(`INSERT INTO sums (spoke, period, owner, name, model, requests, tokens, gone) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (period, owner, name, model, spoke) DO UPDATE SET
			requests = CASE WHEN excluded.requests > sums.requests THEN excluded.requests ELSE sums.requests END,
			tokens = CASE WHEN excluded.tokens > sums.tokens THEN excluded.tokens ELSE sums.tokens END`,
			s.Spoke, s.Period, s.Owner, s.Name, s.Model, s.Requests, s.Tokens, s.Gone)
		if err != nil {
			return err
		}
	}
	return nil
}

// ForgetSums forgets those that may be.
func (t *Tx) ForgetSums(now int64) error { return t.Exec(`DELETE FROM sums WHERE gone < ?`, now) }

// SumsElsewhere adds up, for each owner and period, what all spokes but one have used.
func (t *Tx) SumsElsewhere(spoke string, now int64) (list []Sum, err error) {
	err = t.Tx.Each(func(scan func(...any) error) error {
		var s Sum
		err := scan(&s.Period, &s.Owner, &s.Name, &s.Model, &s.Requests, &s.Tokens)
		list = append(list, s)
		return err
	}, `SELECT period, owner, name, model, CAST(sum(requests) AS BIGINT), CAST(sum(tokens) AS BIGINT) FROM sums
		WHERE spoke <> ? AND gone >= ? GROUP BY period, owner, name, model ORDER BY period, owner, name, model`, spoke, now)
	return list, err
}
