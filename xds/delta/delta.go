// Package delta is the words that a hub and its spokes have in common when policy goes over delta xDS: types, names of nodes,
// sizes of messages, and a cut's resources as responses.
//
// A stream carries one cut at a time: responses with resources, then one with the Revision, which has the number and the digest
// of the whole. A response names the revision that it belongs to in system_version_info. Nothing is sent before the Revision is
// subscribed to, which closes the list of subscriptions; each is for all resources of its type.
package delta

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spokegate/spokegate/policy"
)

const prefix = "type.googleapis.com/spokegate.policy.v1."

// KindRevision is the one kind beside those of package policy: what closes a cut.
const KindRevision = "Revision"

// TypeURL names a kind on the wire.
func TypeURL(kind string) string { return prefix + kind }

// Kind is what a type URL names; "": no kind that this release knows.
func Kind(typeURL string) string {
	kind, ok := strings.CutPrefix(typeURL, prefix)
	if !ok || kind != KindRevision && !slices.Contains(policy.Kinds, kind) {
		return ""
	}
	return kind
}

const (
	// PageBytes is how much a response holds, about: far below what gRPC takes, so that a slow reader hinders nobody for long.
	PageBytes = 1 << 20
	// MostBytes is the largest message that a spoke takes from a hub. A resource that needs more is never sent.
	MostBytes = 4 << 20
	// MostAsked is the largest message that a hub takes from a spoke: the versions of what it has on disk.
	MostAsked = 16 << 20
	// RevisionName is that of the one resource of KindRevision.
	RevisionName = "revision"
	// All subscribes to all resources of a type.
	All = "*"
	// MetadataInstance is the key of a node's metadata that tells one start of a door from another: to a new one a refused
	// revision is sent once more.
	MetadataInstance = "instance"
)

// Node is the id of a door: "SPOKE/DOOR".
func Node(spoke, door string) string { return spoke + "/" + door }

// ParseNode is the reverse of Node.
func ParseNode(id string) (spoke, door string, err error) {
	spoke, door, ok := strings.Cut(id, "/")
	if !ok || !name(spoke) || !name(door) {
		return "", "", fmt.Errorf("node id %.100q: want SPOKE/DOOR, each of 1 to 64 of [a-zA-Z0-9._-]", id)
	}
	return spoke, door, nil
}

func name(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// Version is that of a Revision as a resource: its number, and the digest of its cut. "" is of no cut.
func Version(c *policy.Cut) string {
	if c == nil {
		return ""
	}
	return strconv.FormatUint(c.Revision().GetNumber(), 10) + "/" + hex.EncodeToString(c.Digest())
}

// NumberOf is the number in a Version; 0: none.
func NumberOf(version string) uint64 {
	number, _, _ := strings.Cut(version, "/")
	n, _ := strconv.ParseUint(number, 10, 63)
	return n
}

// DigestOf is the digest in a Version, in hex.
func DigestOf(version string) string {
	_, digest, _ := strings.Cut(version, "/")
	return digest
}
