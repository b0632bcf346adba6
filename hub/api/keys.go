package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spokegate/spokegate/hub"
)

func createKey(s *Server, c *call) (answer, error) {
	in := c.in.(*NewKey)
	expires, err := timeOf("expires", in.Expires)
	if err != nil {
		return answer{}, err
	}
	made, err := s.Hub.CreateKey(c.Context(), c.commit(in.Message), hub.KeySpec{ID: in.ID, Team: in.Team, SHA256: in.SHA256, Models: in.Models,
		Limits: in.Limits, Expires: expires, Networks: in.Networks, Labels: in.Labels})
	if err != nil {
		return answer{}, err
	}
	return keyMade(made, in.SHA256 == ""), nil
}

func keyMade(k hub.KeyMade, withSecret bool) answer {
	out := KeyMade{Key: objectOf(k.Object), Secret: k.Secret, Repeated: withSecret && k.Secret == "", Revision: revisionOf(k.Revision)}
	if k.Old != nil {
		old := objectOf(*k.Old)
		out.Old = &old
	}
	return answer{status: http.StatusCreated, body: out, etag: k.Object.Revision}
}

func rotateKey(s *Server, c *call) (answer, error) {
	in := c.in.(*Rotation)
	var overlap time.Duration
	if in.Overlap != "" {
		var err error
		if overlap, err = time.ParseDuration(in.Overlap); err != nil || overlap < 0 {
			return answer{}, bodyFault{"overlap", "want a time such as 24h or 30m"}
		}
	}
	made, err := s.Hub.RotateKey(c.Context(), c.commit(in.Message), c.PathValue("name"), in.NewID, overlap)
	if err != nil {
		return answer{}, err
	}
	return keyMade(made, true), nil
}

func revokeKey(s *Server, c *call) (answer, error) {
	o, revision, err := s.Hub.RevokeKey(c.Context(), c.commit(c.in.(*Reason).Message), c.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	revoked := objectOf(o)
	return answer{body: Changed{Object: &revoked, Revision: revisionOf(revision)}, etag: o.Revision}, nil
}

// lastYear is the last whole one whose nanoseconds a database has room for.
const lastYear = 2261

// timeOf reads a moment; the zero one where nothing is said.
func timeOf(path, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() > lastYear {
		return t, bodyFault{path, "want a date and time with a zone, like 2027-01-31T00:00:00Z, of the year " + strconv.Itoa(lastYear) + " at most"}
	}
	return t, nil
}

func tokenOf(t hub.Token) Token {
	return Token{Name: t.Name, Role: string(t.Role), Teams: t.Teams, Created: t.Created.UTC(),
		Expires: unlessZero(t.Expires), Revoked: unlessZero(t.Revoked), LastUsed: unlessZero(t.LastUsed)}
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func listTokens(s *Server, c *call) (answer, error) {
	list, err := s.Hub.ListTokens(c.Context(), c.actor)
	if err != nil {
		return answer{}, err
	}
	out := List[Token]{Items: make([]Token, 0, len(list))}
	for _, t := range list {
		out.Items = append(out.Items, tokenOf(t))
	}
	return answer{body: out}, nil
}

func createToken(s *Server, c *call) (answer, error) {
	in := c.in.(*NewToken)
	expires, err := timeOf("expires", in.Expires)
	if err != nil {
		return answer{}, err
	}
	t, secret, err := s.Hub.CreateToken(c.Context(), c.commit(""), hub.Token{Name: in.Name, Role: hub.Role(in.Role), Teams: in.Teams, Expires: expires})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: TokenMade{Token: tokenOf(t), Secret: secret}}, nil
}

func revokeToken(s *Server, c *call) (answer, error) {
	return answer{status: http.StatusNoContent}, s.Hub.RevokeToken(c.Context(), c.commit(""), c.PathValue("name"))
}
