package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/hub/api"
)

// runRevision shows what was changed, and goes back.
func runRevision(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("revision", args, map[string]role{
		"list": listRevisions, "show": showRevision, "diff": diffRevisions, "rollback": rollbackTo, "audit": listAudit,
	})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

func listRevisions(ctx context.Context, args []string) error {
	var most int
	c, _, err := hubCommand("revision list", args, func(f *flag.FlagSet) { f.IntVar(&most, "n", 20, "how many, the newest first; 1 to 1000") })
	if err != nil {
		return err
	}
	var list api.List[api.Revision]
	if err := c.ask(ctx, http.MethodGet, "/v1/revisions?limit="+strconv.Itoa(most), nil, &list); err != nil {
		return err
	}
	if c.json {
		return printJSON(list.Items)
	}
	var rows [][]string
	for _, r := range list.Items {
		rows = append(rows, []string{strconv.FormatUint(r.Number, 10), day(r.At), r.Actor, strconv.Itoa(r.Changes), r.Digest[:min(12, len(r.Digest))], reason(r)})
	}
	return table(os.Stdout, "REVISION MADE BY CHANGES DIGEST MESSAGE", rows)
}

// reason is why a revision was made, on one line.
func reason(r api.Revision) string {
	if r.RollbackTo == 0 {
		return r.Message
	}
	return strings.TrimSuffix(fmt.Sprintf("restores revision %d: %s", r.RollbackTo, r.Message), ": ")
}

// revisionNumber reads one from the command line.
func revisionNumber(text string) (string, error) {
	if n, err := strconv.ParseUint(text, 10, 63); err != nil || n == 0 {
		return "", misused("revision", "%q is no revision: want its number, as spokegate revision list tells it", text)
	}
	return text, nil
}

func showRevision(ctx context.Context, args []string) error {
	c, given, err := hubCommand("revision show", args, nil, "NUMBER")
	if err != nil {
		return err
	}
	n, err := revisionNumber(given[0])
	if err != nil {
		return err
	}
	var r api.Revision
	if err := c.ask(ctx, http.MethodGet, "/v1/revisions/"+n, nil, &r); err != nil {
		return err
	}
	var d api.Diff
	if err := c.ask(ctx, http.MethodGet, "/v1/revisions/"+n+"/diff", nil, &d); err != nil {
		return err
	}
	if c.json {
		return printJSON(struct {
			api.Revision
			Diff []api.Difference `json:"diff"`
		}{r, d.Changes})
	}
	fmt.Printf("revision %d, %s, by %s\ndigest   %s\n", r.Number, day(r.At), printable(r.Actor), r.Digest)
	if r.RollbackTo > 0 {
		fmt.Printf("restores revision %d\n", r.RollbackTo)
	}
	if r.Message != "" {
		fmt.Printf("message  %s\n", printable(r.Message))
	}
	printDifferences(os.Stdout, d.Changes)
	return nil
}

func diffRevisions(ctx context.Context, args []string) error {
	c, given, err := hubCommand("revision diff", args, nil, "FROM", "[TO]")
	if err != nil {
		return err
	}
	path := "/v1/revisions/"
	for i, text := range given {
		if _, err := revisionNumber(text); err != nil {
			return err
		}
		path += []string{text + "/diff", "?to=" + text}[i]
	}
	var d api.Diff
	if err := c.ask(ctx, http.MethodGet, path, nil, &d); err != nil {
		return err
	}
	if c.json {
		return printJSON(d)
	}
	fmt.Printf("revision %d → %d\n", d.From, d.To)
	printDifferences(os.Stdout, d.Changes)
	return nil
}

func rollbackTo(ctx context.Context, args []string) error {
	var in api.Rollback
	c, given, err := hubCommand("revision rollback", args, func(f *flag.FlagSet) {
		f.BoolVar(&in.Revive, "revive", false, "restore also keys and subjects that were revoked, deleted or shortened since; without it none of them works again")
		f.BoolVar(&in.KeepKeys, "keep-keys", false, "leave all keys as they are now")
		messageFlag(f, &in.Message)
	}, "NUMBER")
	if err != nil {
		return err
	}
	n, err := revisionNumber(given[0])
	if err != nil {
		return err
	}
	var r api.Revision
	if err := c.ask(ctx, http.MethodPost, "/v1/revisions/"+n+"/rollback", in, &r); err != nil {
		return err
	}
	return c.saidRevision(r)
}

func listAudit(ctx context.Context, args []string) error {
	var most int
	query := url.Values{}
	texts := map[string]*string{}
	c, _, err := hubCommand("revision audit", args, func(f *flag.FlagSet) {
		f.IntVar(&most, "n", 20, "how many changes, the newest first; 1 to 1000")
		texts["kind"] = f.String("kind", "", "only things of this `kind`, or token")
		texts["name"] = f.String("name", "", "only the thing with this `name`")
		texts["actor"] = f.String("actor", "", "only what this `token` did")
	})
	if err != nil {
		return err
	}
	for name, value := range texts {
		if *value != "" {
			query.Set(name, *value)
		}
	}
	query.Set("limit", strconv.Itoa(most))
	var list api.List[api.AuditEntry]
	if err := c.ask(ctx, http.MethodGet, "/v1/audit?"+query.Encode(), nil, &list); err != nil {
		return err
	}
	if c.json {
		return printJSON(list.Items)
	}
	var rows [][]string
	for _, e := range list.Items {
		revision := ""
		if e.Revision > 0 {
			revision = strconv.FormatUint(e.Revision, 10)
		}
		rows = append(rows, []string{day(e.At), e.Actor, e.Action, strings.TrimSuffix(e.Kind+"/"+e.Name, "/"), revision, changedMembers(e.Before, e.After)})
	}
	return table(os.Stdout, "AT BY ACTION WHAT REVISION CHANGED", rows)
}

// changedMembers is what a change changed, on one line.
func changedMembers(before, after json.RawMessage) string {
	if len(before) == 0 || len(after) == 0 {
		return ""
	}
	return strings.Join(memberChanges("", parsed(before), parsed(after)), "; ")
}

func joined(list []string) string { return strings.Join(list, " ") }

func dayOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return day(*t)
}
