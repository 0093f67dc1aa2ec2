// SPDX-License-Identifier: Apache-2.0

package region

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/fault"
)

// faultsPath is where the region's owner says which calls go wrong. It is served on the host only, and no AWS service
// has such a path.
const faultsPath = "/_slipway/faults"

// ErrNotRunning says that there is no running region to ask.
var ErrNotRunning = errors.New("no local region runs")

// AddFault lets calls to the running region go wrong as r says, until they are cleared or the region's process ends.
func AddFault(ctx context.Context, cache string, r fault.Rule) (fault.Rule, error) {
	var made fault.Rule
	if err := r.Check(); err != nil {
		return made, err
	}

	return made, callFaultsAPI(ctx, cache, http.MethodPost, r, &made)
}

// ListFaults lists the rules of the running region with their counters, oldest first.
func ListFaults(ctx context.Context, cache string) ([]fault.Rule, error) {
	rules := []fault.Rule{}
	return rules, callFaultsAPI(ctx, cache, http.MethodGet, nil, &rules)
}

// ClearFaults forgets all rules of the running region, and returns how many there were.
func ClearFaults(ctx context.Context, cache string) (int, error) {
	n := 0
	return n, callFaultsAPI(ctx, cache, http.MethodDelete, nil, &n)
}

// callFaultsAPI asks the running region in the cache folder, as its owner.
func callFaultsAPI(ctx context.Context, cache, method string, in, out any) error {
	st, err := GetStatus(cache)
	if err != nil {
		return err
	}

	if !st.Running {
		return ErrNotRunning
	}

	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("ask the region: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, st.Endpoint+faultsPath+"/", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the region at %s: %w", st.Endpoint, err)
	}

	req.Header.Set("Authorization", "Bearer "+fault.Token(st.Settings.SecretKey))
	client := &http.Client{Transport: &http.Transport{Proxy: nil}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the region: %w", err)
	}

	defer resp.Body.Close() //nolint:errcheck // it has been read
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("read the region's answer: %w", err)
	}

	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the region refuses: %s", strings.TrimSpace(string(text)))
	}

	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the region's answer: %w", err)
	}

	return nil
}

// killPeer kills the process of this computer that sent r. Requests of machines, which do not come over the host's
// loopback, kill nobody.
func killPeer(r *http.Request) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return errors.New("kill the caller: the connection is not known")
	}

	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("kill the caller: %s is not on this computer", r.RemoteAddr)
	}

	inode, err := findSocketInode(r.RemoteAddr, local.String())
	if err != nil {
		return err
	}

	pid, err := findSocketOwner(inode)
	if err != nil {
		return err
	}

	if pid == os.Getpid() {
		return errors.New("kill the caller: it is the region itself")
	}

	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the caller, process %d: %w", pid, err)
	}

	return nil
}

// findSocketInode is the inode of the host's TCP socket between two addresses of IPv4.
func findSocketInode(from, to string) (string, error) {
	want := [2]string{procNetAddress(from), procNetAddress(to)}
	b, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return "", fmt.Errorf("look for the caller: %w", err)
	}

	const inodeField = 9 // of the kernel's table: sl, local, remote, st, queues, tr, retrnsmt, uid, timeout, inode

	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > inodeField && f[1] == want[0] && f[2] == want[1] {
			return f[inodeField], nil
		}
	}

	return "", fmt.Errorf("look for the caller: no socket from %s", from)
}

// procNetAddress writes an address of IPv4 as /proc/net/tcp does: in the processor's order, which is little-endian on
// all that the region runs on.
func procNetAddress(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host).To4()
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || ip == nil {
		return ""
	}

	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], n)
}

// findSocketOwner is the process that holds a socket.
func findSocketOwner(inode string) (int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, fmt.Errorf("look for the caller: %w", err)
	}

	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+inode+"]" {
			return strconv.Atoi(strings.Split(link, "/")[2])
		}
	}

	return 0, fmt.Errorf("look for the caller: no process holds its socket %s", inode)
}
