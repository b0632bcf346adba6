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
