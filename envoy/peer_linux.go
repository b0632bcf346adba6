package envoy

import (
	"bytes"
	"context"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// process is one run of a program: a pid may be given again, a pid with its start time is not.
type process struct {
	pid   int32
	start string // field 22 of /proc/PID/stat
}

// alive says that it still runs. The zero process, not known, does not.
func (p process) alive() bool {
	if p.pid == 0 {
		return false
	}
	now, state := look(p.pid)
	return now == p && state != 'Z' && state != 'X'
}

// look reads the start time and the state of a process. The name in the second field may contain anything, so what
// counts comes after its last parenthesis.
func look(pid int32) (p process, state byte) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
	if err != nil {
		return process{}, 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, 0
	}
	return process{pid: pid, start: string(fields[19])}, fields[0][0]
}

// peerProcess tells who is at the other end of a call that came over a Unix socket; zero where that is not known, for
// example from another PID namespace.
func peerProcess(ctx context.Context) process {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(peerInfo); ok {
			return info.process
		}
	}
	return process{}
}

// peerCredentials asks the kernel who connects. They encrypt nothing: a Unix socket needs none.
type peerCredentials struct{}

type peerInfo struct {
	credentials.CommonAuthInfo
	process process
}

func (peerInfo) AuthType() string { return "unix peer" }

func (peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := peerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if u, ok := c.(*net.UnixConn); ok {
		if raw, err := u.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
					info.process, _ = look(cred.Pid)
				}
			})
		}
	}
	return c, info, nil
}

func (peerCredentials) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, peerInfo{}, nil
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

func (peerCredentials) Clone() credentials.TransportCredentials { return peerCredentials{} }

func (peerCredentials) OverrideServerName(string) error { return nil }
