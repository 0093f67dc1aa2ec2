// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const written = "FLANNEL_NETWORK=100.64.0.0/16\nFLANNEL_SUBNET=100.64.3.1/24\nFLANNEL_MTU=8951\nFLANNEL_IPMASQ=true\n"

func TestTheDelegateGetsWhatFlannelKnows(t *testing.T) {
	c, err := parseConfig([]byte(`{"cniVersion":"1.0.0","name":"cbr0","type":"flannel","delegate":{"hairpinMode":true,"isDefaultGateway":true}}`))
	if err != nil {
		t.Fatal(err)
	}

	s, err := parseSubnet(written)
	if err != nil {
		t.Fatal(err)
	}

	raw, err := json.Marshal(delegateConfig(c, s))
	if err != nil {
		t.Fatal(err)
	}

	want := `{"cniVersion":"1.0.0","hairpinMode":true,"ipMasq":false,"ipam":{"ranges":[[{"subnet":"100.64.3.0/24"}]],` +
		`"routes":[{"dst":"100.64.0.0/16"}],"type":"host-local"},"isDefaultGateway":true,"isGateway":true,"mtu":8951,"name":"cbr0","type":"bridge"}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}

func TestEverythingWrongIsNamed(t *testing.T) {
	_, err := parseSubnet("FLANNEL_SUBNET=10.0.0.0\nFLANNEL_MTU=big\nFLANNEL_IPMASQ=perhaps\n")
	for _, want := range []string{"FLANNEL_SUBNET: ", "FLANNEL_MTU: ", "FLANNEL_IPMASQ: ", "FLANNEL_NETWORK is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}

	if _, err := parseConfig([]byte(`{"delegate":{"ipam":{}}}`)); err == nil {
		t.Error("delegate.ipam is accepted")
	}
}
