// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

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

// idempotencyToken is a remembered client token: what was asked and what came of it.
type idempotencyToken struct {
	Sum string
	IDs []string
	At  time.Time
}
