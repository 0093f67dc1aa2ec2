// SPDX-License-Identifier: Apache-2.0

// Command flannel is the CNI plugin that puts a pod on flannel's network: it reads what flanneld wrote about this machine
// and hands the work to the bridge plugin. It takes the documented configuration of flannel-io/cni-plugin, whose module
// not every Go module proxy carries. It does not know any address itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Where flanneld writes, and where this plugin remembers what it asked for.
const (
	defaultSubnetFile = "/run/flannel/subnet.env"
	defaultDataDir    = "/var/lib/cni/flannel"
)

// errNotAvailable is the code the CNI specification gives to a plugin that cannot add now; the library has no name for it.
const errNotAvailable = 50

// config is the plugin's part of a CNI configuration.
type config struct {
	types.PluginConf
	SubnetFile    string         `json:"subnetFile"`
	DataDir       string         `json:"dataDir"`
	Delegate      map[string]any `json:"delegate"`
	RuntimeConfig map[string]any `json:"runtimeConfig"`
}

func main() {
	funcs := skel.CNIFuncs{Add: add, Check: check, Del: del, GC: garbage, Status: status}
	skel.PluginMainFuncs(funcs, version.All, "CNI plugin flannel (slipway)")
}

func load(raw []byte) (config, error) {
	c := config{SubnetFile: defaultSubnetFile, DataDir: defaultDataDir}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("reading the network configuration: %w", err)
	}
	for _, key := range []string{"name", "ipam"} {
		if _, set := c.Delegate[key]; set {
			return c, fmt.Errorf("delegate.%s is the plugin's own to fill in", key)
		}
	}
	return c, nil
}

// add asks the delegate for an interface. The delegate's configuration is kept, because flanneld's may be gone when the pod goes.
func add(args *skel.CmdArgs) error {
	c, err := load(args.StdinData)
	if err != nil {
		return err
	}
	s, err := readSubnet(c.SubnetFile)
	if err != nil {
		return err
	}
	conf := delegate(c, s)
	raw, err := json.Marshal(conf)
	if err != nil {
		return fmt.Errorf("writing the delegate's configuration: %w", err)
	}
	if err := remember(c.DataDir, args.ContainerID, raw); err != nil {
		return err
	}
	result, err := invoke.DelegateAdd(context.Background(), plugin(conf), raw, nil)
	if err != nil {
		return fmt.Errorf("delegating to %s: %w", plugin(conf), err)
	}
	return types.PrintResult(result, c.CNIVersion)
}

// del gives back what add asked for. A pod that was never added, or was deleted before, is no error.
func del(args *skel.CmdArgs) error {
	c, err := load(args.StdinData)
	if err != nil {
		return err
	}
	path := filepath.Join(c.DataDir, args.ContainerID)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what was delegated: %w", err)
	}
	var conf map[string]any
	if err := json.Unmarshal(raw, &conf); err != nil {
		return fmt.Errorf("reading what was delegated from %s: %w", path, err)
	}
	if err := invoke.DelegateDel(context.Background(), plugin(conf), raw, nil); err != nil {
		return fmt.Errorf("delegating to %s: %w", plugin(conf), err)
	}
	return os.Remove(path)
}

// check asks the delegate whether the interface is as it was made.
func check(args *skel.CmdArgs) error {
	c, err := load(args.StdinData)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(c.DataDir, args.ContainerID))
	if err != nil {
		return fmt.Errorf("reading what was delegated: %w", err)
	}
	var conf map[string]any
	if err := json.Unmarshal(raw, &conf); err != nil {
		return fmt.Errorf("reading what was delegated: %w", err)
	}
	if c.RawPrevResult != nil {
		conf["prevResult"] = c.RawPrevResult
	}
	if raw, err = json.Marshal(conf); err != nil {
		return fmt.Errorf("writing the delegate's configuration: %w", err)
	}
	return invoke.DelegateCheck(context.Background(), plugin(conf), raw, nil)
}

// status says whether a pod can be added now: flanneld must have its subnet.
func status(args *skel.CmdArgs) error {
	c, err := load(args.StdinData)
	if err != nil {
		return err
	}
	if _, err := readSubnet(c.SubnetFile); err != nil {
		return types.NewError(errNotAvailable, "flannel has no subnet yet", err.Error())
	}
	return nil
}

// garbage forgets containers that the runtime no longer has.
func garbage(args *skel.CmdArgs) error {
	c, err := load(args.StdinData)
	if err != nil {
		return err
	}
	valid := map[string]bool{}
	for _, a := range c.ValidAttachments {
		valid[a.ContainerID] = true
	}
	entries, err := os.ReadDir(c.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !valid[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(c.DataDir, e.Name())))
		}
	}
	return err
}

func remember(dir, id string, raw []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("remembering what was delegated: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, id), raw, 0o600); err != nil {
		return fmt.Errorf("remembering what was delegated: %w", err)
	}
	return nil
}
