package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/spokegate/spokegate/hub"
	"github.com/spokegate/spokegate/policy"
)

func revisionOf(r hub.Revision) Revision {
	return Revision{Number: r.Number, Digest: r.Digest, Message: r.Message, Actor: r.Actor, Role: string(r.Role), RequestID: r.RequestID,
		At: r.At.UTC(), Changes: r.Changes, RollbackTo: r.RollbackTo}
}

func faultOf(p policy.Problem) Fault {
	path := p.Path
	if p.File != "" {
		path = p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column) + ": " + path
	}
	return Fault{path, p.Text}
}

// numberOf is the revision that a path names.
func numberOf(c *call) (uint64, error) {
	n, err := strconv.ParseUint(c.PathValue("number"), 10, 63)
	if err != nil || n == 0 {
		return 0, notFound("revision " + c.PathValue("number"))
	}
	return n, nil
}

// before is where a list goes on that has the highest number first.
func before(c *call) (limit int, number uint64, err error) {
	if limit, err = limitOf(c); err != nil {
		return 0, 0, err
	}
	if text := c.query.Get("after"); text != "" {
		if number, err = strconv.ParseUint(text, 10, 63); err != nil || number == 0 {
			return 0, 0, badRequest("The parameter after wants what the page before had in next.")
		}
	}
	return limit, number, nil
}

func listRevisions(s *Server, c *call) (answer, error) {
	limit, number, err := before(c)
	if err != nil || number == 1 {
		return answer{body: List[Revision]{Items: []Revision{}}}, err
	}
	list, err := s.Hub.Revisions(c.Context(), c.actor, number, limit)
	if err != nil {
		return answer{}, err
	}
	out := List[Revision]{Items: []Revision{}}
	for _, r := range list {
		out.Items = append(out.Items, revisionOf(r))
		if out.Next = strconv.FormatUint(r.Number, 10); r.Number == 1 {
			out.Next = ""
		}
	}
	return answer{body: out, next: out.Next}, nil
}

func getRevision(s *Server, c *call) (answer, error) {
	n, err := numberOf(c)
	if err != nil {
		return answer{}, err
	}
	r, err := s.Hub.Revision(c.Context(), c.actor, n)
	return answer{body: revisionOf(r), etag: r.Number}, err
}

func diffRevisions(s *Server, c *call) (answer, error) {
	to, err := numberOf(c)
	if err != nil {
		return answer{}, err
	}
	from := to - 1
	if text := c.query.Get("to"); text != "" {
		from = to
		if to, err = strconv.ParseUint(text, 10, 63); err != nil {
			return answer{}, notFound("revision " + text)
		}
	}
	d, err := s.Hub.Diff(c.Context(), c.actor, from, to)
	if err != nil {
		return answer{}, err
	}
	return answer{body: Diff{From: d.From, To: d.To, Changes: differences(d)}}, nil
}

func rollback(s *Server, c *call) (answer, error) {
	n, err := numberOf(c)
	if err != nil {
		return answer{}, err
	}
	in := c.in.(*Rollback)
	commit := c.commit(in.Message)
	commit.Base = in.Base
	r, err := s.Hub.Rollback(c.Context(), commit, n, hub.RollbackOptions{Revive: in.Revive, KeepKeys: in.KeepKeys})
	return answer{status: http.StatusCreated, body: revisionOf(r)}, err
}

func batch(s *Server, c *call) (answer, error) {
	in := c.in.(*Batch)
	commit := c.commit(in.Message)
	commit.Base = in.Base
	for i, x := range in.Changes {
		if x.Body == nil { // forgotten, perhaps: nothing is deleted by a slip
			return answer{}, bodyFault{"changes[" + strconv.Itoa(i) + "].body", "is missing; want the thing, or null to delete it"}
		}
		change := hub.Change{Kind: hub.Kind(x.Kind), Name: x.Name, IfRevision: x.IfRevision}
		if !bytes.Equal(x.Body, []byte("null")) {
			change.Body = x.Body
		}
		commit.Changes = append(commit.Changes, change)
	}
	r, err := s.Hub.Commit(c.Context(), commit)
	return answer{status: http.StatusCreated, body: revisionOf(r)}, err
}

// importPolicy answers with what it has changed, or with dry_run would.
func importPolicy(s *Server, c *call) (answer, error) {
	i := hub.Import{File: "policy", YAML: c.raw, Spoke: c.query.Get("spoke")}
	said := map[string]bool{}
	for _, name := range []string{"replace", "revive", "dry_run"} {
		switch c.query.Get(name) {
		case "", "false":
		case "true":
			said[name] = true
		default:
			return answer{}, badRequest("The parameter " + name + " wants true or false.")
		}
	}
	i.Replace, i.Revive = said["replace"], said["revive"]
	commit := c.commit(c.query.Get("message"))
	if said["dry_run"] {
		d, err := s.Hub.PreviewImport(c.Context(), commit, i)
		return answer{body: Imported{Revision: revisionOf(s.Hub.Head()), Changes: differences(d)}}, err
	}
	r, err := s.Hub.Import(c.Context(), commit, i)
	if err != nil {
		return answer{}, err
	}
	out := Imported{Revision: revisionOf(r), Changes: []Difference{}}
	if r.RequestID == c.id { // else everything was so already
		d, err := s.Hub.Diff(c.Context(), c.actor, r.Number-1, r.Number)
		if err != nil {
			return answer{}, err
		}
		out.Changes = differences(d)
	}
	return answer{status: http.StatusCreated, body: out}, nil
}

func differences(d hub.Diff) []Difference {
	list := make([]Difference, 0, len(d.Changes))
	for _, x := range d.Changes {
		list = append(list, Difference{string(x.Kind), x.Name, bodyOrNothing(x.Before), bodyOrNothing(x.After)})
	}
	return list
}

func listAudit(s *Server, c *call) (answer, error) {
	limit, number, err := before(c)
	if err != nil || number == 1 {
		return answer{body: List[AuditEntry]{Items: []AuditEntry{}}}, err
	}
	list, err := s.Hub.Audit(c.Context(), c.actor, hub.AuditQuery{Before: number, Limit: limit, Kind: hub.Kind(c.query.Get("kind")),
		Name: c.query.Get("name"), Actor: c.query.Get("actor")})
	if err != nil {
		return answer{}, err
	}
	out := List[AuditEntry]{Items: []AuditEntry{}}
	for _, e := range list {
		out.Items = append(out.Items, auditOf(e))
	}
	if len(list) == limit { // perhaps the next page is empty: the log does not say how far it goes
		out.Next = strconv.FormatUint(list[limit-1].Number, 10)
	}
	return answer{body: out, next: out.Next}, nil
}

func auditOf(e hub.AuditEntry) AuditEntry {
	return AuditEntry{Number: e.Number, At: e.At.UTC(), Actor: e.Actor, Role: string(e.Role), RequestID: e.RequestID, Action: e.Action,
		Kind: string(e.Kind), Name: e.Name, Revision: e.Revision, Before: bodyOrNothing(e.Before), After: bodyOrNothing(e.After)}
}

// bodyOrNothing: an empty one is absent.
func bodyOrNothing(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return b
}
