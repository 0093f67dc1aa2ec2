// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// userData is a machine's user data: Slipway's boot configuration, and all the rest.
type userData struct {
	boot node.BootConfig
	// parts are the texts besides the boot configuration, by name. They may contain what an operator wrote.
	parts map[string]string
}

// userDataSettings returns the settings that differ between the existing and the desired user data of a
// launch template: those of the node documents that the two refer to, the agent, and the names of additional
// parts, but not their content. It returns nil if one of the two cannot be read.
func (in Input) userDataSettings(s plan.Step, c plan.Change) []plan.Setting {
	encoded, _ := c.Old.(string)
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}

	old, hadBoot := parseUserData(string(text))
	now, hasBoot := parseUserData(in.desiredUserData(s, c))
	if !hadBoot || !hasBoot {
		return nil
	}

	settings := in.documentSettings(old.boot, now.boot)
	settings = append(settings, in.bootSettings(old.boot, now.boot)...)

	return append(settings, partSettings(old.parts, now.parts)...)
}

// desiredUserData returns the desired user data as text; values that AWS assigns are written as ${…}.
func (in Input) desiredUserData(s plan.Step, c plan.Change) string {
	if encoded, ok := c.New.(string); ok && encoded != plan.Unknown {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil {
			return string(text)
		}
	}

	if template, ok := in.resourceOf(s).(awskind.LaunchTemplate); ok {
		return template.Data.UserData.String()
	}

	return ""
}

// SplitUserData returns the SHA-256 of the node document that user data refers to, and a text that is the same for user
// data that differ in nothing else. It returns false for user data without a boot configuration, as that of a bastion.
func SplitUserData(text string) (document, rest string, ok bool) {
	parsed, ok := parseUserData(text)
	if !ok || parsed.boot.Document.SHA256 == "" {
		return "", "", false
	}

	document = parsed.boot.Document.SHA256

	return document, strings.ReplaceAll(text, document, ""), true
}

// FindDocument returns the SHA-256 of the node document that user data refers to, and its key in the machine store. It
// returns false for user data without a boot configuration.
func FindDocument(text string) (sum, key string, ok bool) {
	parsed, ok := parseUserData(text)
	key = documentKey(parsed.boot)

	return parsed.boot.Document.SHA256, key, ok && key != ""
}

// bootPattern finds the boot configuration in the script of [node.BootScript].
func bootPattern() *regexp.Regexp { return regexp.MustCompile(`(?s)json\.loads\(r'''(\{.*?\})'''\)`) }

// parseUserData splits user data; false if it has no boot configuration, as that of a bastion.
func parseUserData(text string) (userData, bool) {
	out := userData{parts: map[string]string{}}
	if found := bootPattern().FindStringSubmatchIndex(text); found != nil {
		err := json.Unmarshal([]byte(text[found[2]:found[3]]), &out.boot)
		out.parts = splitParts(text[:found[2]] + text[found[3]:])

		return out, err == nil
	}

	return parseIgnition(text)
}

// splitParts splits a MIME message into its parts by their file names. Text that is no message is the boot
// script.
func splitParts(text string) map[string]string {
	out := map[string]string{}
	_, boundary, isMessage := strings.Cut(text, `boundary="`)
	boundary, _, _ = strings.Cut(boundary, `"`)
	if !isMessage || !strings.HasPrefix(text, "MIME-Version:") {
		out["boot script"] = text
		return out
	}

	for _, part := range strings.Split(text, "--"+boundary)[1:] {
		_, name, named := strings.Cut(part, `filename="`)
		name, _, _ = strings.Cut(name, `"`)
		switch {
		case !named:
		case name == "00-slipway":
			out["boot script"] = part
		default:
			out["additionalUserData "+name] = part
		}
	}

	return out
}

// parseIgnition splits an Ignition configuration.
func parseIgnition(text string) (userData, bool) {
	out := userData{parts: map[string]string{}}
	var config struct {
		Ignition json.RawMessage `json:"ignition"`
		Systemd  json.RawMessage `json:"systemd"`
		Storage  struct {
			Files []struct {
				Path     string `json:"path"`
				Contents struct {
					Source string `json:"source"`
				} `json:"contents"`
			} `json:"files"`
		} `json:"storage"`
	}
	if json.Unmarshal([]byte(text), &config) != nil {
		return out, false
	}

	out.parts["boot script"] = string(config.Systemd)
	out.parts["additionalUserData"] = string(config.Ignition)

	for _, f := range config.Storage.Files {
		if f.Path != "/etc/slipway/boot.json" {
			continue
		}

		boot, err := url.PathUnescape(strings.TrimPrefix(f.Contents.Source, "data:,"))
		if err == nil && json.Unmarshal([]byte(boot), &out.boot) == nil {
			return out, true
		}
	}

	return out, false
}

// documentSettings returns the settings that differ between the node documents of two boot configurations.
func (in Input) documentSettings(old, now node.BootConfig) []plan.Setting {
	if old.Document.SHA256 == now.Document.SHA256 || in.Document == nil {
		return nil
	}

	before, hadDocument := in.Document(documentKey(old))
	after, hasDocument := in.Document(documentKey(now))
	if !hadDocument || !hasDocument {
		return []plan.Setting{{
			Setting: "node document",
			Old:     shortSum(old.Document.SHA256),
			New:     shortSum(now.Document.SHA256),
		}}
	}

	return addClasses(DocumentSettings(before, after), before, after)
}

// documentKey returns the key of a boot configuration's document in the machine store.
func documentKey(b node.BootConfig) string {
	if i := strings.Index(b.Document.URL, "/"+node.MachinePrefix(b.Cluster)); i >= 0 {
		return b.Document.URL[i+1:]
	}

	return ""
}

// bootSettings returns the differences of two boot configurations, except the document.
func (in Input) bootSettings(old, now node.BootConfig) []plan.Setting {
	var out []plan.Setting
	if old.Agent.SHA256 != now.Agent.SHA256 {
		was := "sha256 " + shortSum(old.Agent.SHA256)
		is := "sha256 " + shortSum(now.Agent.SHA256)
		if in.FormerTool != "" && in.FormerTool != in.Tool {
			was = in.FormerTool + ", " + was
			is = in.Tool + ", " + is
		}

		out = append(out, plan.Setting{Setting: "agent", Old: was, New: is})
	}

	for _, x := range []struct{ name, old, now string }{
		{"api.public", old.API.Public, now.API.Public},
		{"api.internal", old.API.Internal, now.API.Internal},
		{"slot", old.Slot, now.Slot},
		{"region", old.Region, now.Region},
		{"owner of the store's bucket", old.StoreOwner, now.StoreOwner},
		{"document location", locationOf(old), locationOf(now)},
	} {
		if x.old != x.now {
			out = append(out, plan.Setting{Setting: x.name, Old: orUnset(x.old), New: orUnset(x.now)})
		}
	}

	return out
}

// locationOf returns the store that a document is downloaded from.
func locationOf(b node.BootConfig) string {
	return strings.TrimSuffix(b.Document.URL, documentKey(b))
}

// orUnset returns nil for an empty text, and [plan.Unknown] for one that AWS assigns.
func orUnset(s string) any {
	switch {
	case s == "":
		return nil
	case strings.Contains(s, "${"):
		return plan.Unknown
	}

	return s
}

// partSettings returns the parts of user data that differ, by size and hash: they may contain anything.
func partSettings(old, now map[string]string) []plan.Setting {
	sums := func(parts map[string]string) map[string]any {
		out := map[string]any{}
		for name, text := range parts {
			out[name] = summarize(text)
		}

		return out
	}

	return diffTrees(sums(old), sums(now))
}

// summarize returns the size and the hash of a text that must not be shown.
func summarize(text string) string {
	sum := sha256.Sum256([]byte(text))

	return fmt.Sprintf("%d bytes, sha256 %x", len(text), sum[:6])
}

func shortSum(sum string) string { return sum[:min(len(sum), 12)] }

// DocumentSettings returns the settings that differ between two node documents. Files and images are compared
// by their versions, and certificates by their hashes. The Kubernetes version comes first, what follows from
// it last.
func DocumentSettings(old, now []byte) []plan.Setting {
	var before, after map[string]any
	if json.Unmarshal(old, &before) != nil || json.Unmarshal(now, &after) != nil {
		return nil
	}

	settings := diffTrees(readableDocument(before), readableDocument(after))
	slices.SortStableFunc(settings, func(a, b plan.Setting) int {
		return cmp.Compare(settingRank(a.Setting), settingRank(b.Setting))
	})

	return settings
}

func settingRank(name string) int {
	switch {
	case name == "kubernetesVersion":
		return 0
	case strings.HasPrefix(name, "files.") || strings.HasPrefix(name, "images."):
		return 2
	}

	return 1
}

// readableDocument returns a node document with lists of named items as maps, and with short values for files,
// images and certificates.
func readableDocument(doc map[string]any) map[string]any {
	out := maps.Clone(doc)
	files := map[string]any{}
	list, _ := doc["files"].([]any)

	for _, item := range list {
		f, _ := item.(map[string]any)
		files[fmt.Sprint(f["name"])] = versionText(fmt.Sprint(f["url"]), fmt.Sprint(f["sha256"]))
	}

	out["files"] = files
	images := map[string]any{}
	names, _ := doc["images"].(map[string]any)

	for name, ref := range names {
		image, digest, _ := strings.Cut(fmt.Sprint(ref), "@sha256:")
		images[name] = versionText(image, digest)
	}

	out["images"] = images
	trust := map[string]any{}
	certificates, _ := doc["trust"].(map[string]any)

	for name, pem := range certificates {
		trust[name] = DescribeTrust(fmt.Sprint(pem))
	}

	out["trust"] = trust
	slots := map[string]any{}
	places, _ := doc["slots"].([]any)

	for _, item := range places {
		s, _ := item.(map[string]any)
		slots[fmt.Sprint(s["name"])] = s
	}

	out["slots"] = slots

	return out
}

// versionText returns the version in an address, else the whole address, and the beginning of its hash.
func versionText(address, sum string) string {
	version := regexp.MustCompile(`\d+\.\d+(\.\d+)?([-+][\w.]+)?`).FindAllString(address, -1)
	if len(version) == 0 {
		return address + " " + shortSum(sum)
	}

	return strings.TrimSuffix(version[len(version)-1], ".tar.gz") + " (" + shortSum(sum) + ")"
}

// diffTrees returns the smallest parts of two JSON trees that differ, sorted by path.
func diffTrees(old, now map[string]any) []plan.Setting {
	var out []plan.Setting
	var walk func(path string, a, b any)
	walk = func(path string, a, b any) {
		x, isMap := a.(map[string]any)
		y, bothMaps := b.(map[string]any)
		if isMap && (bothMaps || b == nil) || bothMaps && a == nil {
			both := maps.Clone(x)
			if both == nil {
				both = map[string]any{}
			}

			maps.Copy(both, y)
			for _, k := range slices.Sorted(maps.Keys(both)) {
				walk(strings.TrimPrefix(path+"."+k, "."), x[k], y[k])
			}

			return
		}

		if !graph.EqualValues(a, b) {
			out = append(out, plan.Setting{Setting: path, Old: a, New: b})
		}
	}

	walk("", old, now)

	return out
}
