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

// ignitionVersion is the oldest that says all that is needed; every Flatcar since 2022 reads it.
const ignitionVersion = "3.3.0"

// ignitionUnit is what the boot script writes elsewhere. /usr is read-only on Flatcar.
const ignitionUnit = `[Unit]
Description=Slipway agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0
[Service]
ExecStart=/opt/bin/slipway-node run --config /etc/slipway/boot.json
Restart=always
RestartSec=5
[Install]
WantedBy=multi-user.target
`

type jsonObject = map[string]any

// ignitionConfig is the user data of a machine without cloud-init: Ignition itself fetches the agent with the rights of the
// machine's role and refuses another hash, and systemd starts it.
func (b *builder) ignitionConfig(l machineSet, c bootConfig) string {
	// What only a renderer knows must stay as it is, not encoded.
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

// escapeData escapes what a data URL may not hold. Marks of what is not known yet, such as @@INTERNAL@@, stay.
func escapeData(s string) string { return strings.ReplaceAll(url.PathEscape(s), "+", "%2B") }

// marshalJSON prints what is JSON for certain.
func marshalJSON(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("model: user data: %v", err)) // strings, numbers and truths only
	}

	return strings.TrimSuffix(out.String(), "\n")
}
