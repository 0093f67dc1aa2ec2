// SPDX-License-Identifier: Apache-2.0

// Package region is the local AWS region: its process, its settings and the wiring of its services, machines and
// networks. It imports nothing of the provisioner and no part of the provisioner knows about it.
package region

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Options are what an operator may choose when a region is first started. Zero values take the defaults.
type Options struct {
	CacheDir string // folder for everything, such as ~/.cache/slipway
	Region   string // default us-east-1
	Port     int    // on 127.0.0.1; default 4666
}

// Settings are a region's lasting facts, kept in its folder for its life.
type Settings struct {
	ID        string `json:"id"`      // four hex digits: in every namespace's, cgroup's and link's name
	Region    string `json:"region"`  // such as us-east-1
	Account   string `json:"account"` // 12 digits
	Port      int    `json:"port"`    // on 127.0.0.1
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"` // good for this region alone; the file is 0600
}

// The defaults of a new region, and the addresses that machines know it by.
const (
	DefaultRegion  = "us-east-1"
	DefaultPort    = 4666
	defaultAccount = "000000000000"
	// ServiceAddress is where a region answers inside its VPCs: 198.18.0.0/15 is for tests of networks (RFC 2544).
	ServiceAddress = "198.18.0.1"
	// RegistryPort is the OCI registry's port at ServiceAddress.
	RegistryPort = 5000
	// AssetsBucket is the name of the read-only bucket of built assets.
	AssetsBucket = "slipway-assets"
)

// Paths of one region below its cache folder.
type regionPaths struct{ cacheDir string }

func (p regionPaths) regionDir() string    { return filepath.Join(p.cacheDir, "region") }
func (p regionPaths) settingsFile() string { return filepath.Join(p.regionDir(), "settings.json") }
func (p regionPaths) processFile() string  { return filepath.Join(p.regionDir(), "process.json") }
func (p regionPaths) logFile() string      { return filepath.Join(p.regionDir(), "region.log") }
func (p regionPaths) stateDir() string     { return filepath.Join(p.regionDir(), "state") }
func (p regionPaths) assetsDir() string    { return filepath.Join(p.cacheDir, "assets") }
func (p regionPaths) imageDir() string     { return filepath.Join(p.cacheDir, "image") }

// loadSettings reads the region's settings. The error wraps fs.ErrNotExist if there is no region.
func loadSettings(p regionPaths) (Settings, error) {
	var s Settings
	b, err := os.ReadFile(p.settingsFile())
	if err != nil {
		return s, fmt.Errorf("read the region's settings: %w", err)
	}

	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read the region's settings %s: %w", p.settingsFile(), err)
	}

	return s, nil
}

// ensureSettings returns the region's settings, making them on its first start.
func ensureSettings(o Options) (Settings, error) {
	p := regionPaths{o.CacheDir}
	s, err := loadSettings(p)
	if err == nil {
		return s.applyOptions(o)
	}

	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}

	s = Settings{Region: o.Region, Account: defaultAccount, Port: o.Port}
	if s.Region == "" {
		s.Region = DefaultRegion
	}

	if s.Port == 0 {
		s.Port = findFreePort()
	}

	s.ID = randomHex(2)
	s.AccessKey = "AKIA" + strings.ToUpper(randomHex(8))
	s.SecretKey = randomHex(20)
	if err := os.MkdirAll(p.regionDir(), 0o700); err != nil {
		return s, fmt.Errorf("make the region's folder: %w", err)
	}

	return s, writeJSON(p.settingsFile(), s)
}

// applyOptions takes over the options that may still change, and refuses those that differ from what the region is.
func (s Settings) applyOptions(o Options) (Settings, error) {
	p := regionPaths{o.CacheDir}
	if o.Region != "" && o.Region != s.Region {
		return s, fmt.Errorf(
			"this region is %s, not %s: `slipway region destroy` first, or set another SLIPWAY_CACHE",
			s.Region,
			o.Region,
		)
	}

	if o.Port == 0 || o.Port == s.Port {
		return s, nil
	}

	if _, ok := findRunningProcess(p); ok {
		return s, fmt.Errorf(
			"this region runs on port %d, not %d: `slipway region stop` first",
			s.Port,
			o.Port,
		)
	}

	s.Port = o.Port

	return s, writeJSON(p.settingsFile(), s)
}

// findFreePort is the default port, or another one where that is taken.
func findFreePort() int {
	for _, port := range []string{strconv.Itoa(DefaultPort), "0"} {
		ln, err := net.Listen("tcp", "127.0.0.1:"+port) //nolint:noctx // it is closed at once
		if err != nil {
			continue
		}

		defer ln.Close() //nolint:errcheck // nothing was accepted
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			return a.Port
		}
	}

	return DefaultPort
}

// balancerLoopback is the first address of the region's internet-facing load balancers: one of 127.64.0.0 to 127.127.255.0 by
// the region's id, so that two regions of one computer seldom want the same.
func (s Settings) balancerLoopback() netip.Addr {
	id, err := hex.DecodeString(s.ID)
	if err != nil || len(id) < 2 {
		return netip.Addr{} // load balancing's own default
	}

	return netip.AddrFrom4([4]byte{127, 64 + id[0]%64, id[1], 1})
}

// publicAddressRange begins the range of the region's public addresses: one of 127.128.0.0/16 to 127.191.0.0/16 by its id.
func (s Settings) publicAddressRange() netip.Addr {
	first := s.balancerLoopback()
	if !first.IsValid() {
		return first
	}

	b := first.As4()
	const beside = 64 // load balancers have the ranges before

	return netip.AddrFrom4([4]byte{b[0], b[1] + beside, b[2], 0})
}

// Endpoint is the region's URL for clients on this machine.
func (s Settings) Endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", s.Port) }

// Env lists the variables that point AWS clients and slipway at the region, in a fixed order.
func (s Settings) Env(cache string) [][2]string {
	return [][2]string{
		{"AWS_ENDPOINT_URL", s.Endpoint()},
		{"AWS_REGION", s.Region},
		{"AWS_DEFAULT_REGION", s.Region},
		{"AWS_ACCESS_KEY_ID", s.AccessKey},
		{"AWS_SECRET_ACCESS_KEY", s.SecretKey},
		{"AWS_EC2_METADATA_DISABLED", "true"},
		{"SLIPWAY_ASSETS", filepath.Join(regionPaths{cache}.assetsDir(), "catalog.yaml")},
	}
}

// randomHex returns n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}

// writeJSON writes v to path, whole or not at all, readable by its owner only.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}

	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}
