package mtls

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc/metadata"
)

// ShowsToken says whether a gRPC call brings the spoke's join token; never where there is none. Digests are compared, so that
// neither the token's bytes nor its length show in the time that it takes.
func ShowsToken(ctx context.Context, join string) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if join == "" || len(values) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(join))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "bearer")
}
