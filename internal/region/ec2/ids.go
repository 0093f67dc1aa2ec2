// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// newID makes an id such as vpc-0123456789abcdef0: a prefix and 17 hexadecimal digits.
func (s *Service) newID(prefix string) string {
	id := prefix + "-0" + s.hex(16)
	s.born(prefix, id)
	if s.births != nil {
		s.births = append(s.births, id)
	}
	return id
}

func (s *Service) hex(n int) string { return record.Hex(s.cfg.Rand, n) }

// kinds maps an id's prefix to the name that ARNs and tags use.
func kinds() map[string]string {
	return map[string]string{
		"vpc": "vpc", "subnet": "subnet", "igw": "internet-gateway", "eipalloc": "elastic-ip", "nat": "natgateway",
		"rtb": "route-table", "sg": "security-group", "sgr": "security-group-rule", "acl": "network-acl",
		"eni": "network-interface", "vol": "volume", "lt": "launch-template", "i": "instance", "ami": "image",
		"key": "key-pair", "vpce": "vpc-endpoint", "pcx": "vpc-peering-connection", "snap": "snapshot",
	}
}

func prefixOf(id string) string {
	p, _, _ := strings.Cut(id, "-")
	return p
}

// kindOf is the kind that ARNs use for an id; DescribeTags and TagSpecifications agree but for images.
func kindOf(id string) string { return kinds()[prefixOf(id)] }

func (s *Service) arn(id string) string {
	account := s.cfg.Account
	if prefixOf(id) == "ami" {
		account = ""
	}
	return fmt.Sprintf("arn:aws:ec2:%s:%s:%s/%s", s.cfg.Region, account, kindOf(id), id)
}

// sortedKeys gives a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return record.Keys(m) }

// str reads an optional string.
func str(p *string) string { return record.Str(p) }

// strs reads a list of strings.
func strs(p []*string) []string { return record.Strs(p) }

func sumOf(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// replay looks a client token up: the ids of the first answer, or nil where this is the first time.
func (s *Service) replay(op string, tok *string, in any) ([]string, error) {
	if str(tok) == "" {
		return nil, nil
	}
	known, ok := s.st.Tokens[op+"/"+str(tok)]
	if !ok {
		return nil, nil
	}
	if known.Sum != sumOf(in) {
		return nil, wire.Errorf("IdempotentParameterMismatch", "The client token %q was used before with other parameters", str(tok))
	}
	return known.IDs, nil
}

// remember keeps the answer for a client token. Tokens are forgotten after a day, as at AWS.
func (s *Service) remember(op string, tok *string, in any, ids ...string) {
	if str(tok) == "" {
		return
	}
	now := s.cfg.Now()
	maps.DeleteFunc(s.st.Tokens, func(_ string, t token) bool { return now.Sub(t.At) > 24*time.Hour })
	s.st.Tokens[op+"/"+str(tok)] = token{Sum: sumOf(in), IDs: ids, At: now}
}

// keyed is a set of mutexes, one a key.
type keyed struct {
	mu sync.Mutex
	m  map[string]*sync.Mutex
}

func (k *keyed) of(key string) *sync.Mutex {
	k.mu.Lock()
	defer k.mu.Unlock()
	initMap(&k.m)
	if k.m[key] == nil {
		k.m[key] = &sync.Mutex{}
	}
	return k.m[key]
}

func (k *keyed) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.m, key)
}
