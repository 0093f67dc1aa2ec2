// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// ignitionVersion is the oldest version with all needed features; every Flatcar since 2022 supports it.
const ignitionVersion = "3.3.0"

// ignitionUnit is the systemd unit of the agent. On other systems the boot script writes it. The agent is in
// /opt, since /usr is read-only on Flatcar.
const ignitionUnit = `[Unit]
Description=Slipway agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0
[Service]
ExecStart=/opt/bin/slipway-node run --config /etc/slipway/boot.json
Restart=always
RestartSec=5
LimitCORE=0
MemorySwapMax=0
LockPersonality=1
RestrictRealtime=1
RestrictSUIDSGID=1
[Install]
WantedBy=multi-user.target
`

type jsonObject = map[string]any

// ignitionConfig returns the user data of a machine without cloud-init: Ignition downloads the agent with the
// permissions of the machine's role and verifies its hash, and systemd starts it.
func (b *builder) ignitionConfig(l machineSet, c bootConfig) string {
	// A placeholder must not be encoded, or the renderer would not find it.
	const signal = "@@SIGNAL@@"
	names := c.Signal
	if names != "" {
		c.Signal = signal
	}

	const program, private = 0o755, 0o600
	head := jsonObject{"version": ignitionVersion}
	var merged []jsonObject

	for _, m := range l.group.Spec.AdditionalUserData {
		merged = append(
			merged,
			jsonObject{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(m.Content))},
		)
	}

	if merged != nil {
		head["config"] = jsonObject{"merge": merged}
	}

	doc := marshalJSON(jsonObject{
		"ignition": head,
		"storage": jsonObject{"files": []jsonObject{
			{"path": "/opt/bin/slipway-node", "mode": program, "contents": jsonObject{
				"source": c.Agent.URL, "verification": jsonObject{"hash": "sha256-" + c.Agent.SHA256},
			}},
			{
				"path":     "/etc/slipway/boot.json",
				"mode":     private,
				"contents": jsonObject{"source": "data:," + escapeData(marshalJSON(c))},
			},
		}},
		"systemd": jsonObject{
			"units": []jsonObject{
				{"name": "slipway-node.service", "enabled": true, "contents": ignitionUnit},
			},
		},
	})

	return strings.Replace(doc, signal, names, 1)
}

// escapeData escapes the characters that a data URL cannot contain. Markers such as @@INTERNAL@@ stay.
func escapeData(s string) string { return strings.ReplaceAll(url.PathEscape(s), "+", "%2B") }

// marshalJSON encodes v, which must contain only types that JSON supports.
func marshalJSON(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("model: user data: %v", err)) // strings, numbers and bools only
	}

	return strings.TrimSuffix(out.String(), "\n")
}
