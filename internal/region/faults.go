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

// faultsPath is the path of the API for injecting faults. It is served on the host only, and no AWS service
// uses this path.
const faultsPath = "/_slipway/faults"

// ErrNotRunning is returned if no region is running.
var ErrNotRunning = errors.New("the local region is not running")

// AddFault adds a rule for faults to the running region. It applies until it is cleared or the region's
// process ends.
func AddFault(ctx context.Context, cache string, r fault.Rule) (fault.Rule, error) {
	var added fault.Rule
	if err := r.Validate(); err != nil {
		return added, err
	}

	return added, callFaultsAPI(ctx, cache, http.MethodPost, r, &added)
}

// ListFaults returns the rules of the running region with their counters, oldest first.
func ListFaults(ctx context.Context, cache string) ([]fault.Rule, error) {
	rules := []fault.Rule{}
	return rules, callFaultsAPI(ctx, cache, http.MethodGet, nil, &rules)
}

// ClearFaults deletes all rules of the running region, and returns their number.
func ClearFaults(ctx context.Context, cache string) (int, error) {
	n := 0
	return n, callFaultsAPI(ctx, cache, http.MethodDelete, nil, &n)
}

// callFaultsAPI calls the faults API of the region in the cache folder.
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
		return fmt.Errorf("call the region: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, st.Endpoint+faultsPath+"/", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call the region at %s: %w", st.Endpoint, err)
	}

	req.Header.Set("Authorization", "Bearer "+fault.AdminToken(st.Settings.SecretKey))
	client := &http.Client{Transport: &http.Transport{Proxy: nil}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("call the region: %w", err)
	}

	defer func() { _ = resp.Body.Close() }()
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("read the region's answer: %w", err)
	}

	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the region refused: %s", strings.TrimSpace(string(text)))
	}

	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the region's answer: %w", err)
	}

	return nil
}

// killPeer kills the process of this computer that sent r with SIGKILL. It refuses requests that do not come
// over the loopback interface, such as those of machines.
func killPeer(r *http.Request) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return errors.New("kill the caller: the connection is unknown")
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
		return errors.New("kill the caller: the caller is the region itself")
	}

	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the caller, process %d: %w", pid, err)
	}

	return nil
}

// findSocketInode returns the inode of the host's TCP socket between two IPv4 addresses.
func findSocketInode(from, to string) (string, error) {
	want := [2]string{procNetAddress(from), procNetAddress(to)}
	b, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return "", fmt.Errorf("find the caller: %w", err)
	}

	const inodeField = 9 // columns: sl, local, remote, st, queues, tr, retrnsmt, uid, timeout, inode

	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > inodeField && f[1] == want[0] && f[2] == want[1] {
			return f[inodeField], nil
		}
	}

	return "", fmt.Errorf("find the caller: no socket from %s", from)
}

// procNetAddress formats an IPv4 address as /proc/net/tcp does: in host byte order, which is little-endian on
// all architectures that the region supports.
func procNetAddress(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host).To4()
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || ip == nil {
		return ""
	}

	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], n)
}

// findSocketOwner returns the ID of the process that has a socket open.
func findSocketOwner(inode string) (int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, fmt.Errorf("find the caller: %w", err)
	}

	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+inode+"]" {
			return strconv.Atoi(strings.Split(link, "/")[2])
		}
	}

	return 0, fmt.Errorf("find the caller: no process has its socket %s open", inode)
}
