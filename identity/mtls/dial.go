package mtls

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Dial are credentials for gRPC connections to who has the name; empty: the host that is dialled.
func (k *Keeper) Dial(name string) credentials.TransportCredentials { return dialing{k, name} }

// dialing makes each handshake with the files as they are then.
type dialing struct {
	keeper *Keeper
	name   string
}

func (d dialing) fresh() credentials.TransportCredentials {
	return credentials.NewTLS(d.keeper.Client(d.name))
}

func (d dialing) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return d.fresh().ClientHandshake(ctx, authority, raw)
}

func (d dialing) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("mtls: these credentials are for calling")
}

func (d dialing) Info() credentials.ProtocolInfo          { return d.fresh().Info() }
func (d dialing) Clone() credentials.TransportCredentials { return d }
func (d dialing) OverrideServerName(string) error         { return nil }

// Listen are credentials for a gRPC server: see Server. Handshakes that fail are logged.
func (k *Keeper) Listen(accept func(*x509.Certificate) error) credentials.TransportCredentials {
	return listening{credentials.NewTLS(k.Server(accept, "h2")), k.log}
}

type listening struct {
	credentials.TransportCredentials
	log *slog.Logger
}

func (l listening) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		l.log.Warn("handshake failed", "from", raw.RemoteAddr().String(), "error", err)
	}
	return conn, info, err
}

// Caller is the verified certificate of who makes a gRPC call; nil: it has none.
func Caller(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}
