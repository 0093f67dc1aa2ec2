// SPDX-License-Identifier: Apache-2.0

// Package region runs the local AWS region: its process, its settings, its machines and its network. The
// services and how they are connected are in package services. It imports no package of the provisioner, and
// only the command line imports it.
package region

import (
	"cmp"
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
	"time"

	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// Options are the options of [Start]. Zero values are the defaults.
type Options struct {
	CacheDir string // folder of the region, the image and the assets, such as ~/.cache/slipway
	Region   string // name of the AWS region; default us-east-1
	Port     int    // port on 127.0.0.1; default 4666, or a free one
	// VisibilityDelay is how long what is new is not seen; nil keeps what the region has, or the default.
	VisibilityDelay *time.Duration
}

// Settings identify a region. They are stored in its folder on the first start and kept until the region is
// destroyed.
type Settings struct {
	ID        string `json:"id"`        // four hex digits; part of the name of every namespace, cgroup and link
	Region    string `json:"region"`    // such as us-east-1
	Account   string `json:"account"`   // 12 digits
	Port      int    `json:"port"`      // on 127.0.0.1
	AccessKey string `json:"accessKey"` // of the account's root
	SecretKey string `json:"secretKey"` // valid in this region only; the file has mode 0600
	// VisibilityDelay is how long what is new is not seen; nil is the default.
	VisibilityDelay *time.Duration `json:"visibilityDelay,omitempty"`
}

// Defaults of a new region, and its addresses inside VPCs.
const (
	DefaultRegion  = "us-east-1"
	DefaultPort    = 4666
	defaultAccount = "000000000000"
	// ServiceAddress is the region's address inside its VPCs. 198.18.0.0/15 is reserved for tests (RFC 2544).
	ServiceAddress = "198.18.0.1"
	// RegistryPort is the OCI registry's port at ServiceAddress.
	RegistryPort = 5000
	// DefaultVisibilityDelay is how long what is new is not seen.
	DefaultVisibilityDelay = visibility.DefaultTime
	// AssetsBucket is the name of the read-only bucket with the built assets.
	AssetsBucket = "slipway-assets"
)

// regionPaths returns the paths of a region below its cache folder.
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

// ensureSettings returns the region's settings. It creates them on the first start.
func ensureSettings(o Options) (Settings, error) {
	p := regionPaths{o.CacheDir}
	s, err := loadSettings(p)
	if err == nil {
		return s.applyOptions(o)
	}

	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}

	s = Settings{
		Region:          o.Region,
		Account:         defaultAccount,
		Port:            o.Port,
		VisibilityDelay: o.VisibilityDelay,
	}
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
		return s, fmt.Errorf("create the region's folder: %w", err)
	}

	return s, writeJSON(p.settingsFile(), s)
}

// applyOptions changes the settings that may change after the first start, and refuses options that
// contradict the others.
func (s Settings) applyOptions(o Options) (Settings, error) {
	p := regionPaths{o.CacheDir}
	if o.Region != "" && o.Region != s.Region {
		return s, fmt.Errorf(
			"this region is %s, not %s: `slipway region destroy` first, or set another SLIPWAY_CACHE",
			s.Region,
			o.Region,
		)
	}

	now := s
	now.Port = cmp.Or(o.Port, s.Port)
	if o.VisibilityDelay != nil {
		now.VisibilityDelay = o.VisibilityDelay
	}

	if now.Port == s.Port && now.visibilityDelay() == s.visibilityDelay() {
		return s, nil
	}

	if _, ok := findRunningProcess(p); ok {
		return s, fmt.Errorf(
			"this region runs on port %d with a visibility delay of %s, not %d and %s: `slipway region stop` first",
			s.Port,
			s.visibilityDelay(),
			now.Port,
			now.visibilityDelay(),
		)
	}

	return now, writeJSON(p.settingsFile(), now)
}

// visibilityDelay returns how long what is new is not seen.
func (s Settings) visibilityDelay() time.Duration {
	if s.VisibilityDelay == nil {
		return visibility.DefaultTime
	}

	return *s.VisibilityDelay
}

// findFreePort returns the default port, or the first free one of the hundred that follow. They are below those that the
// kernel gives to connections, so that the region can have its port again after a restart.
func findFreePort() int {
	for port := DefaultPort; port < DefaultPort+100; port++ {
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)) //nolint:noctx // it is closed at once
		if err == nil {
			_ = ln.Close()
			return port
		}
	}

	return DefaultPort
}

// balancerLoopback returns the first address of internet-facing load balancers. It is between 127.64.0.0 and
// 127.127.255.0 and depends on the region's ID, so that two regions on one computer rarely collide.
func (s Settings) balancerLoopback() netip.Addr {
	id, err := hex.DecodeString(s.ID)
	if err != nil || len(id) < 2 {
		return netip.Addr{} // the default of package elbv2
	}

	return netip.AddrFrom4([4]byte{127, 64 + id[0]%64, id[1], 1})
}

// publicAddressRange returns the first address of the region's public addresses: one of 127.128.0.0/16 to
// 127.191.0.0/16, depending on the region's ID.
func (s Settings) publicAddressRange() netip.Addr {
	first := s.balancerLoopback()
	if !first.IsValid() {
		return first
	}

	b := first.As4()
	const afterBalancers = 64 // the 64 ranges before are for load balancers

	return netip.AddrFrom4([4]byte{b[0], b[1] + afterBalancers, b[2], 0})
}

// Endpoint returns the region's URL for clients on this computer.
func (s Settings) Endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", s.Port) }

// Env returns the environment variables that point AWS clients and slipway to the region, in a fixed order.
func (s Settings) Env(cache string) [][2]string {
	return [][2]string{
		{"AWS_ENDPOINT_URL", s.Endpoint()},
		{"AWS_REGION", s.Region},
		{"AWS_DEFAULT_REGION", s.Region},
		{"AWS_ACCESS_KEY_ID", s.AccessKey},
		{"AWS_SECRET_ACCESS_KEY", s.SecretKey},
		{"AWS_EC2_METADATA_DISABLED", "true"},
		{"SLIPWAY_STATE_OWNER", s.Account}, // not that of another account's store, as in the configuration file
		{"SLIPWAY_ASSETS", filepath.Join(regionPaths{cache}.assetsDir(), "catalog.yaml")},
	}
}

// randomHex returns n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}

// writeJSON writes v to path with mode 0600, atomically.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}

	return state.WriteFileAtomically(path, append(b, '\n'))
}
