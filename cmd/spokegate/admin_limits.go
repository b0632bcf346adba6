package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spokegate/spokegate/hub/api"
)

// runLimit looks after limits, which are parts of teams, keys, models, issuers and the platform.
func runLimit(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("limit", args, map[string]role{"list": listLimits, "set": setLimit, "delete": deleteLimit})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// ownerPath is where the owner of a limit is: team/NAME, key/ID, model/NAME, issuer/NAME or platform.
func ownerPath(owner string) (string, error) {
	word, name, _ := strings.Cut(owner, "/")
	switch {
	case owner == "platform":
		return "/v1/platform", nil
	case name != "" && slices.Contains([]string{"team", "key", "model", "issuer"}, word):
		return "/v1/" + word + "s/" + url.PathEscape(name), nil
	}
	return "", misused("limit", "%q has no limits: want platform, team/NAME, key/ID, model/NAME or issuer/NAME", owner)
}

const ownerArgument = "OWNER"

// limitRow is one limit, and whose.
type limitRow struct {
	Owner string         `json:"owner"`
	Limit map[string]any `json:"limit"`
}

func listLimits(ctx context.Context, args []string) error {
	c, given, err := hubCommand("limit list", args, nil, "["+ownerArgument+"]")
	if err != nil {
		return err
	}
	var owners []api.Object
	if len(given) > 0 {
		path, err := ownerPath(given[0])
		if err != nil {
			return err
		}
		var o api.Object
		if err := c.ask(ctx, http.MethodGet, path, nil, &o); err != nil {
			return err
		}
		owners = []api.Object{o}
	} else if owners, err = c.limited(ctx); err != nil {
		return err
	}
	list := []limitRow{}
	for _, o := range owners {
		for _, l := range limitsOf(o) {
			list = append(list, limitRow{strings.TrimSuffix(o.Kind+"/"+o.Name, "/"), l})
		}
	}
	if c.json {
		return printJSON(list)
	}
	var rows [][]string
	for _, l := range list {
		model := word(l.Limit["model"])
		delete(l.Limit, "model")
		rows = append(rows, []string{l.Owner, model, limitWords([]any{l.Limit})})
	}
	return table(os.Stdout, "OWNER MODEL LIMIT", rows)
}

// limited is all that may have limits, but for keys: of these there may be a million.
func (c *hubClient) limited(ctx context.Context) (owners []api.Object, err error) {
	var platform api.Object
	switch err := c.ask(ctx, http.MethodGet, "/v1/platform", nil, &platform); {
	case err == nil:
		owners = append(owners, platform)
	case !missing(err):
		return nil, err
	}
	for _, shelf := range []string{"/v1/models", "/v1/teams", "/v1/issuers"} {
		list, err := all[api.Object](ctx, c, shelf, url.Values{})
		if err != nil {
			return nil, err
		}
		owners = append(owners, list...)
	}
	return owners, nil
}

func limitsOf(o api.Object) (list []map[string]any) {
	body, _ := parsed(o.Body).(map[string]any)
	limits, _ := body["limits"].([]any)
	for _, l := range limits {
		if m, is := l.(map[string]any); is {
			list = append(list, m)
		}
	}
	return list
}

// setLimit changes one limit of an owner, and of that what is said; the rest stays.
func setLimit(ctx context.Context, args []string) error {
	var model, message string
	values := map[string]*string{}
	c, given, err := hubCommand("limit set", args, func(f *flag.FlagSet) {
		f.StringVar(&model, "model", "", "only requests for this `model`; empty: all together")
		for _, n := range limitNames {
			values[n.member] = f.String(n.flag, "", "`number` of "+n.help+"; none: takes it away")
		}
		messageFlag(f, &message)
	}, ownerArgument)
	if err != nil {
		return err
	}
	return c.changeLimits(ctx, given[0], message, func(list []map[string]any) ([]map[string]any, error) {
		i := slices.IndexFunc(list, func(l map[string]any) bool { return word(l["model"]) == model })
		if i < 0 {
			l := map[string]any{}
			if model != "" {
				l["model"] = model
			}
			list, i = append(list, l), len(list)
		}
		said := false
		for _, n := range limitNames {
			switch text := *values[n.member]; text {
			case "":
				continue
			case "none":
				delete(list[i], n.member)
			default:
				if _, err := strconv.ParseFloat(text, 64); err != nil {
					return nil, misused("limit set", "-%s %q: want a number, or none", n.flag, text)
				}
				list[i][n.member] = json.Number(text)
			}
			said = true
		}
		if !said {
			return nil, misused("limit set", "say what the limit is, for example -requests-per-second 5; spokegate limit set -h tells the rest")
		}
		return list, nil
	})
}

func deleteLimit(ctx context.Context, args []string) error {
	var model, message string
	c, given, err := hubCommand("limit delete", args, func(f *flag.FlagSet) {
		f.StringVar(&model, "model", "", "the limit of requests for this `model`; empty: that of all together")
		messageFlag(f, &message)
	}, ownerArgument)
	if err != nil {
		return err
	}
	return c.changeLimits(ctx, given[0], message, func(list []map[string]any) ([]map[string]any, error) {
		i := slices.IndexFunc(list, func(l map[string]any) bool { return word(l["model"]) == model })
		if i < 0 {
			return nil, fmt.Errorf("%s has no such limit; spokegate limit list %[1]s tells those that it has", given[0])
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// changeLimits rewrites an owner's limits, unless somebody else has changed the owner in the meantime.
func (c *hubClient) changeLimits(ctx context.Context, owner, message string, change func([]map[string]any) ([]map[string]any, error)) error {
	path, err := ownerPath(owner)
	if err != nil {
		return err
	}
	o := api.Object{Kind: "platform"}
	condition := []string{"If-None-Match", "*"}
	switch err := c.ask(ctx, http.MethodGet, path, nil, &o); {
	case err == nil:
		condition = []string{"If-Match", `"` + strconv.FormatUint(o.Revision, 10) + `"`}
	case owner != "platform" || !missing(err):
		return err
	}
	limits, err := change(limitsOf(o))
	if err != nil {
		return err
	}
	body, _ := parsed(o.Body).(map[string]any)
	if body == nil {
		body = map[string]any{}
	}
	if body["limits"] = limits; len(limits) == 0 {
		delete(body, "limits")
	}
	return c.put(ctx, path, body, message, condition...)
}
