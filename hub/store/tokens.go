package store

import "github.com/spokegate/spokegate/sqldb"

// Token is an admin token.
type Token struct {
	Name    string
	Hash    []byte // SHA-256 of its secret
	Role    string
	Teams   string // JSON
	Created int64
	Expires int64 // 0: never
	Revoked int64 // 0: it is not
	Used    int64 // 0: never
}

const tokenColumns = `name, hash, role, teams, created, expires, revoked, used`

func scanToken(scan func(...any) error) (k Token, err error) {
	err = scan(&k.Name, &k.Hash, &k.Role, &k.Teams, &k.Created, &k.Expires, &k.Revoked, &k.Used)
	return k, err
}

// Token is one by its name.
func (t *Tx) Token(name string) (k Token, ok bool, err error) {
	k, err = scanToken(t.Row(`SELECT `+tokenColumns+` FROM tokens WHERE name = ?`, name).Scan)
	ok, err = sqldb.Found(err)
	return k, ok, err
}

// TokenByHash is one by the hash of its secret.
func (t *Tx) TokenByHash(hash []byte) (k Token, ok bool, err error) {
	k, err = scanToken(t.Row(`SELECT `+tokenColumns+` FROM tokens WHERE hash = ?`, hash).Scan)
	ok, err = sqldb.Found(err)
	return k, ok, err
}

// Tokens are all, in order of name.
func (t *Tx) Tokens() (list []Token, err error) {
	err = t.Tx.Each(func(scan func(...any) error) error {
		k, err := scanToken(scan)
		list = append(list, k)
		return err
	}, `SELECT `+tokenColumns+` FROM tokens ORDER BY name`)
	return list, err
}

// AddToken adds a token.
func (t *Tx) AddToken(k Token) error {
	return t.Exec(`INSERT INTO tokens (`+tokenColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		k.Name, k.Hash, k.Role, k.Teams, k.Created, k.Expires, k.Revoked, k.Used)
}

// RevokeToken revokes a token, for good.
func (t *Tx) RevokeToken(name string, at int64) error {
	return t.Exec(`UPDATE tokens SET revoked = ? WHERE name = ? AND revoked = 0`, at, name)
}

// UseToken says when a token was used.
func (t *Tx) UseToken(name string, at int64) error {
	return t.Exec(`UPDATE tokens SET used = ? WHERE name = ? AND used < ?`, at, name, at)
}
