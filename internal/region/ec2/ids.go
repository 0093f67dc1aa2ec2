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

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// newID makes an id such as vpc-0123456789abcdef0: a prefix and 17 hexadecimal digits.
func (s *Service) newID(prefix string) string {
	id := prefix + "-0" + s.randomHex(16)
	s.trackNewID(prefix, id)
	if s.createdIDs != nil {
		s.createdIDs = append(s.createdIDs, id)
	}

	return id
}

func (s *Service) randomHex(n int) string { return sdkshape.RandomHex(s.cfg.Rand, n) }

// resourceKinds maps an id's prefix to the name that ARNs and tags use.
func resourceKinds() map[string]string {
	return map[string]string{
		"vpc": "vpc", "subnet": "subnet", "igw": "internet-gateway", "eipalloc": "elastic-ip", "nat": "natgateway",
		"rtb": "route-table", "sg": "security-group", "sgr": "security-group-rule", "acl": "network-acl",
		"eni": "network-interface", "vol": "volume", "lt": "launch-template", "i": "instance", "ami": "image",
		"key": "key-pair", "vpce": "vpc-endpoint", "pcx": "vpc-peering-connection", "snap": "snapshot",
	}
}

func idPrefix(id string) string {
	p, _, _ := strings.Cut(id, "-")
	return p
}

// resourceKind is the kind that ARNs use for an id; DescribeTags and TagSpecifications agree but for images.
func resourceKind(id string) string { return resourceKinds()[idPrefix(id)] }

func (s *Service) resourceARN(id string) string {
	account := s.cfg.Account
	if idPrefix(id) == "ami" {
		account = ""
	}

	return fmt.Sprintf("arn:aws:ec2:%s:%s:%s/%s", s.cfg.Region, account, resourceKind(id), id)
}

// sortedKeys gives a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return sdkshape.SortedKeys(m) }

// str reads an optional string.
func str(p *string) string { return sdkshape.String(p) }

// strs reads a list of strings.
func strs(p []*string) []string { return sdkshape.Strings(p) }

func requestHash(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}

	sum := sha256.Sum256(b)

	return hex.EncodeToString(sum[:])
}

// idempotentResult looks a client token up: the ids of the first answer, or nil where this is the first time.
func (s *Service) idempotentResult(op string, tok *string, in any) ([]string, error) {
	if str(tok) == "" {
		return nil, nil
	}

	known, ok := s.st.Tokens[op+"/"+str(tok)]
	if !ok {
		return nil, nil
	}

	if known.Sum != requestHash(in) {
		return nil, wire.Errorf(
			"IdempotentParameterMismatch",
			"The client token %q was used before with other parameters",
			str(tok),
		)
	}

	return known.IDs, nil
}

// saveIdempotentResult keeps the answer for a client token. Tokens are forgotten after a day, as at AWS.
func (s *Service) saveIdempotentResult(op string, tok *string, in any, ids ...string) {
	if str(tok) == "" {
		return
	}

	now := s.cfg.Now()
	maps.DeleteFunc(
		s.st.Tokens,
		func(_ string, t idempotencyToken) bool { return now.Sub(t.At) > 24*time.Hour },
	)

	s.st.Tokens[op+"/"+str(tok)] = idempotencyToken{Sum: requestHash(in), IDs: ids, At: now}
}

// keyedMutex is a set of mutexes, one a key.
type keyedMutex struct {
	mu      sync.Mutex
	mutexes map[string]*sync.Mutex
}

func (k *keyedMutex) mutexFor(key string) *sync.Mutex {
	k.mu.Lock()
	defer k.mu.Unlock()
	initMap(&k.mutexes)
	if k.mutexes[key] == nil {
		k.mutexes[key] = &sync.Mutex{}
	}

	return k.mutexes[key]
}

func (k *keyedMutex) removeKey(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mutexes, key)
}
