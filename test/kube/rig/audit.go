package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// auditPolicy has each call of a service account logged: who, what, on which resource, with which answer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
`

// Call is one that the API server was asked, by its audit log.
type Call struct {
	User        string // system:serviceaccount:NAMESPACE:NAME
	Verb        string // get, list, watch, create, update, patch, delete
	Group       string // "" is the core group
	Resource    string // with its subresource: pods, inferencepools/status
	Namespace   string
	Name        string
	Path        string // of the URL, for what is no resource
	Code        int
	Reason      string // why RBAC said yes or no
	Stage       string // a watch is told when it starts and when it ends
	Description string // as an operator would read it
}

func (c Call) String() string {
	return fmt.Sprintf("%s may %s %d (%s)", c.User, c.Description, c.Code, c.Reason)
}

// event is what we read of audit.k8s.io/v1.
type event struct {
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource, Namespace, Name, APIGroup, Subresource string
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// Calls are those that a service account has made so far.
func (c *Cluster) Calls(t testing.TB, namespace, account string) []Call {
	t.Helper()
	log, err := os.ReadFile(c.path("audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + namespace + ":" + account
	var calls []Call
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // its last line is being written
		}
		if e.User.Username == user {
			calls = append(calls, e.call())
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return calls
}

func (e *event) call() Call {
	c := Call{User: e.User.Username, Verb: e.Verb, Path: e.RequestURI, Code: e.ResponseStatus.Code, Stage: e.Stage, Reason: e.Annotations["authorization.k8s.io/reason"]}
	if o := e.ObjectRef; o != nil {
		c.Group, c.Resource, c.Namespace, c.Name = o.APIGroup, o.Resource, o.Namespace, o.Name
		if o.Subresource != "" {
			c.Resource += "/" + o.Subresource
		}
		c.Description = fmt.Sprintf("%s %s.%s %s/%s", c.Verb, c.Resource, c.Group, c.Namespace, c.Name)
	} else {
		c.Description = c.Verb + " " + c.Path
	}
	return c
}
