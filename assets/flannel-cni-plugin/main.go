// SPDX-License-Identifier: Apache-2.0

// Command flannel is the CNI plugin that connects a pod to flannel's network. It reads the subnet
// file of flanneld on this machine and delegates to the bridge plugin. It reads the documented
// configuration of flannel-io/cni-plugin, whose module is missing from some Go module proxies. It
// assigns no addresses itself.
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

// Default paths of flanneld's subnet file, and of the directory where this plugin saves delegated
// configurations.
const (
	defaultSubnetFile = "/run/flannel/subnet.env"
	defaultDataDir    = "/var/lib/cni/flannel"
)

// errNotAvailable is the CNI error code of a plugin that cannot serve ADD requests now; the library
// has no constant for it.
const errNotAvailable = 50

// pluginConfig is the plugin's CNI network configuration.
type pluginConfig struct {
	types.PluginConf
	// SubnetFile is the path of flanneld's subnet file. Default /run/flannel/subnet.env.
	SubnetFile string `json:"subnetFile"`
	// DataDir is the directory of saved configurations. Default /var/lib/cni/flannel.
	DataDir string `json:"dataDir"`
	// Delegate overrides settings of the delegated plugin.
	Delegate map[string]any `json:"delegate"`
	// RuntimeConfig is passed to the delegated plugin.
	RuntimeConfig map[string]any `json:"runtimeConfig"`
}

func main() {
	funcs := skel.CNIFuncs{
		Add:    cmdAdd,
		Check:  cmdCheck,
		Del:    cmdDel,
		GC:     cmdGC,
		Status: cmdStatus,
	}
	skel.PluginMainFuncs(funcs, version.All, "CNI plugin flannel (slipway)")
}

func parseConfig(raw []byte) (pluginConfig, error) {
	c := pluginConfig{SubnetFile: defaultSubnetFile, DataDir: defaultDataDir}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("parse network configuration: %w", err)
	}

	for _, key := range []string{"name", "ipam"} {
		if _, set := c.Delegate[key]; set {
			return c, fmt.Errorf("delegate.%s must not be set: this plugin sets it", key)
		}
	}

	return c, nil
}

// cmdAdd delegates ADD. It saves the delegated configuration, because flanneld's subnet file may be
// gone at DEL.
func cmdAdd(args *skel.CmdArgs) error {
	c, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}

	s, err := readSubnet(c.SubnetFile)
	if err != nil {
		return err
	}

	conf := delegateConfig(c, s)
	raw, err := json.Marshal(conf)
	if err != nil {
		return fmt.Errorf("encode delegated configuration: %w", err)
	}

	if err := saveDelegateConfig(c.DataDir, args.ContainerID, raw); err != nil {
		return err
	}

	result, err := invoke.DelegateAdd(context.Background(), pluginType(conf), raw, nil)
	if err != nil {
		return fmt.Errorf("delegate to %s: %w", pluginType(conf), err)
	}

	return types.PrintResult(result, c.CNIVersion)
}

// cmdDel delegates DEL. It succeeds for a pod that was never added or was deleted before.
func cmdDel(args *skel.CmdArgs) error {
	c, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}

	path := filepath.Join(c.DataDir, args.ContainerID)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("read delegated configuration: %w", err)
	}

	var conf map[string]any
	if err := json.Unmarshal(raw, &conf); err != nil {
		return fmt.Errorf("read delegated configuration from %s: %w", path, err)
	}

	if err := invoke.DelegateDel(context.Background(), pluginType(conf), raw, nil); err != nil {
		return fmt.Errorf("delegate to %s: %w", pluginType(conf), err)
	}

	return os.Remove(path)
}

// cmdCheck delegates CHECK.
func cmdCheck(args *skel.CmdArgs) error {
	c, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}

	raw, err := os.ReadFile(filepath.Join(c.DataDir, args.ContainerID))
	if err != nil {
		return fmt.Errorf("read delegated configuration: %w", err)
	}

	var conf map[string]any
	if err := json.Unmarshal(raw, &conf); err != nil {
		return fmt.Errorf("read delegated configuration: %w", err)
	}

	if c.RawPrevResult != nil {
		conf["prevResult"] = c.RawPrevResult
	}

	if raw, err = json.Marshal(conf); err != nil {
		return fmt.Errorf("encode delegated configuration: %w", err)
	}

	return invoke.DelegateCheck(context.Background(), pluginType(conf), raw, nil)
}

// cmdStatus reports whether pods can be added now, which is when flanneld has written its subnet.
func cmdStatus(args *skel.CmdArgs) error {
	c, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}

	if _, err := readSubnet(c.SubnetFile); err != nil {
		return types.NewError(errNotAvailable, "flannel has no subnet yet", err.Error())
	}

	return nil
}

// cmdGC removes the saved configurations of containers that no longer exist.
func cmdGC(args *skel.CmdArgs) error {
	c, err := parseConfig(args.StdinData)
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

func saveDelegateConfig(dir, id string, raw []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save delegated configuration: %w", err)
	}

	if err := os.WriteFile(filepath.Join(dir, id), raw, 0o600); err != nil {
		return fmt.Errorf("save delegated configuration: %w", err)
	}

	return nil
}
